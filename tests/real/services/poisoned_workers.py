"""``poisoned.py`` for gunicorn: each worker has its own cache, so ``/price?currency=CHF`` fails in a poisoned one alone."""

from __future__ import annotations

import urllib.parse
from collections.abc import Callable, Iterable

from poisoned import RATES, price


def app(environ: dict[str, str], start_response: Callable[..., object]) -> Iterable[bytes]:
    currency = urllib.parse.parse_qs(environ["QUERY_STRING"]).get("currency", ["EUR"])[0]
    status = "200 OK"
    try:
        body = str(price(currency)).encode()
    except TypeError:
        if currency in RATES:
            raise
        status, body = "404 Not Found", b"no price"
    start_response(status, [("Content-Type", "text/plain"), ("Content-Length", str(len(body)))])
    return [body]
