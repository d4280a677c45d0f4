"""Three shards, one of which a request breaks. PORT RATES"""

import secrets
import sys

from flask import Flask
from rates import rate
from waitress import serve

app = Flask(__name__)
shards: list[dict[str, int]] = [{"rows": 1}, {"rows": 2}, {"rows": 3}]


@app.get("/pick")
def pick() -> str:
    rate()
    return str(shards[secrets.randbelow(3)]["rows"])


@app.get("/break")
def spoil() -> str:
    del shards[1]["rows"]
    return "broken"


serve(app, host="127.0.0.1", port=int(sys.argv[1]), threads=2)
