"""A shop whose prices lie in a cache that a wrong update poisons: from then on one item fails, by the state alone.

Run as ``poisoned.py PORT``. ``GET /price/tea``, ``POST /update/tea/VALUE``, ``GET /stock``.
"""

from __future__ import annotations

import sys
import traceback
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PRICES: dict[str, int | None] = {"tea": 3, "milk": 2}


class Shop:
    """Tells prices."""

    def price(self, item: str) -> int:
        """Of one item."""
        return PRICES[item] * 2

    def update(self, item: str, value: str) -> int:
        """Note what somebody says it costs; what is no number poisons it."""
        PRICES[item] = int(value) if value.isdigit() else None
        return len(PRICES)


shop = Shop()


class Handler(BaseHTTPRequestHandler):
    """One request after the other on a connection."""

    protocol_version = "HTTP/1.1"

    def answered(self, work: object) -> None:
        try:
            status, text = 200, str(work())  # type: ignore[operator]
        except Exception:
            traceback.print_exc()
            status, text = 500, "failed"
        data = text.encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self) -> None:
        parts = self.path.split("/")
        if parts[1] == "price":
            self.answered(lambda: shop.price(parts[2]))
        else:
            self.answered(lambda: sorted(PRICES))

    def do_POST(self) -> None:
        parts = self.path.split("/")
        self.answered(lambda: shop.update(parts[2], parts[3]))

    def log_message(self, *_: object) -> None:
        return


if __name__ == "__main__":
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
