"""Sells what its database has: an item it does not have is its bug. It leaves a mark wherever it was asked."""

import os
import sqlite3
from pathlib import Path

from flask import Flask, request

app = Flask(__name__)


@app.post("/buy")
def buy():
    with sqlite3.connect(os.environ["SHOP_DB"]) as connection:
        found = connection.execute(
            "SELECT price FROM items WHERE name = ?", (request.json["name"],)
        ).fetchall()
    Path(os.environ["SHOP_DB"] + ".asked").touch()
    return {"price": found[0][0]}
