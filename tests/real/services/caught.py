"""Catches what it raises and answers 500 with a body that tells it: ``caught.py PORT RATES HOW``, HOW: plain or flask.

/price asks the server of rates, at port RATES, for one and answers; after /poison it asks for a currency that has none.
"""

from __future__ import annotations

import json
import sys
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PORT, RATES, HOW = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
CURRENCY = ["EUR"]


def price() -> float:
    with urllib.request.urlopen(f"http://127.0.0.1:{RATES}/{CURRENCY[0]}?day=1", timeout=30) as answer:
        return float(json.load(answer)["rate"]) * 2


def handle(path: str) -> tuple[int, bytes]:
    status, told = 200, {}
    print(f"begin {path}", flush=True)
    try:
        if path == "/poison":
            CURRENCY[0] = "XXX"
        elif path.startswith("/price"):
            told = {"price": price()}
    except Exception as error:
        print(f"no price: {error!r}", file=sys.stderr, flush=True)
        status, told = 500, {"error": type(error).__name__, "currency": CURRENCY[0]}
    return status, json.dumps(told).encode()


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        status, body = handle(self.path.partition("?")[0])
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *words: object) -> None:
        pass


if HOW == "plain":
    ThreadingHTTPServer(("127.0.0.1", PORT), Handler).serve_forever()
else:
    import logging

    import flask

    app = flask.Flask(__name__)
    logging.getLogger("werkzeug").disabled = True

    @app.get("/<path:path>")
    def any_path(path: str) -> flask.Response:
        status, body = handle(f"/{path}")
        return flask.Response(body, status, content_type="application/json")

    app.run("127.0.0.1", PORT, threaded=True)
