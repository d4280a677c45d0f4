"""A service whose cache is poisoned by one request, long before another fails by it: ``poisoned.py PORT``.

``/price?currency=CHF`` answers 200, or 500 once ``/price?currency=chf`` was asked.
"""

from __future__ import annotations

import http.server
import sys
import traceback
import urllib.parse

RATES = {"EUR": 1.0, "CHF": 0.94}
cache: dict[str, float | None] = {}
asked = 0


def price(currency: str) -> float:
    key = currency.upper()
    if key not in cache:
        cache[key] = RATES.get(currency)
    return 4.0 * cache[key]  # type: ignore[operator]  # that is the mistake


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        global asked  # noqa: PLW0603 - a number that a program keeps so
        asked += 1
        url = urllib.parse.urlsplit(self.path)
        currency = urllib.parse.parse_qs(url.query).get("currency", ["EUR"])[0]
        try:
            status, body = 200, str(price(currency)).encode()
        except TypeError:
            traceback.print_exc()
            status, body = (404 if currency not in RATES else 500), b"no price"
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


if __name__ == "__main__":
    http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
