"""A shop whose cache keeps whatever was written to it, until somebody reckons with it. PORT RATES"""

import sys

from flask import Flask, request
from rates import rate
from waitress import serve

app = Flask(__name__)
cache: dict[str, int | None] = {"EUR": 2}


@app.get("/price")
def price() -> str:
    return str(rate() * cache["EUR"])


@app.get("/write")
def write() -> str:
    cache["EUR"] = int(request.args["rate"]) if request.args["rate"].isdigit() else None
    return "written"


serve(app, host="127.0.0.1", port=int(sys.argv[1]), threads=2)
