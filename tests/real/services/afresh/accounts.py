"""Accounts in PostgreSQL behind a pool of SQLAlchemy, which connects at the first request; a missing account is its bug."""

import os
import threading

import sqlalchemy
from flask import Flask

app = Flask(__name__)
engine = sqlalchemy.create_engine(os.environ["ACCOUNTS"])


def balance(number):
    with engine.connect() as connection:
        found = connection.execute(
            sqlalchemy.text("SELECT balance FROM accounts WHERE id = :id"), {"id": number}
        )
        return found.fetchone()[0]


@app.get("/accounts/<int:number>")
def account(number):
    return {"balance": float(balance(number))}


@app.get("/later/<int:number>")
def later(number):
    """In a thread, which dies of it; the answer is a good one."""
    thread = threading.Thread(target=balance, args=(number,))
    thread.start()
    thread.join()
    return {}
