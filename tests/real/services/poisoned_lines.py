"""``poisoned.py`` without HTTP: a currency a line, answered with a price. ``CHF`` kills the service once ``chf`` was asked."""

from __future__ import annotations

import socketserver
import sys

RATES = {"EUR": 1.0, "CHF": 0.94}
cache: dict[str, float | None] = {}


class Handler(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        for line in self.rfile:
            currency = line.decode().strip()
            rate = cache.setdefault(currency.upper(), RATES.get(currency))
            if rate is None and currency in RATES:
                sys.exit(f"no rate of {currency}")
            self.wfile.write(b"unknown\n" if rate is None else b"%.2f\n" % (4 * rate))


if __name__ == "__main__":
    with socketserver.TCPServer(("127.0.0.1", int(sys.argv[1])), Handler) as server:
        server.serve_forever()
