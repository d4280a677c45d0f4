"""The gateway that charges cards: somebody else's service. Now and then it is busy, thinks for a while, and answers 503;
who tries the same order again is served.

python gateway.py --port 9000 [--busy 0.02]
"""

from __future__ import annotations

import argparse
import json
import random
import time
import uuid
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

LATE = 0.8  # [s] until it says that it is busy


class Gateway(BaseHTTPRequestHandler):
    """``POST /charges {"order": N, "amount": "12.30"}``."""

    protocol_version = "HTTP/1.1"
    busy = 0.02
    put_off: ClassVar[set[int]] = set()  # orders

    def do_POST(self) -> None:
        """Charge, or not."""
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if asked["order"] not in self.put_off and random.random() < self.busy:
            self.put_off.add(asked["order"])
            time.sleep(LATE)
            self._answer(503, {"error": "busy"})
        elif Decimal(asked["amount"]) <= 0:
            self._answer(422, {"error": f"amount {asked['amount']} is not positive"})
        else:
            self._answer(201, {"charge": f"ch_{uuid.uuid4().hex[:12]}"})

    def _answer(self, status: int, value: dict[str, str]) -> None:
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def main() -> None:
    """Read the arguments and serve."""
    parser = argparse.ArgumentParser(description="A gateway that charges cards.")
    parser.add_argument("--port", type=int, default=9000)
    parser.add_argument(
        "--busy", type=float, default=Gateway.busy, help="share of charges it has no time for"
    )
    options = parser.parse_args()
    Gateway.busy = options.busy
    ThreadingHTTPServer(("127.0.0.1", options.port), Gateway).serve_forever()


if __name__ == "__main__":
    main()
