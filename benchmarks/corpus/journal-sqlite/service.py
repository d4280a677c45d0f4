"""An account of 100 that may not be overdrawn, in SQLite. PORT RATES DATA JOURNAL-MODE"""

import sqlite3
import sys
import traceback
from http.server import BaseHTTPRequestHandler, HTTPServer
from urllib.parse import parse_qs, urlsplit

from rates import rate

database = sqlite3.connect(f"{sys.argv[3]}/account.db", isolation_level=None)
database.execute(f"PRAGMA journal_mode={sys.argv[4]}")
database.execute("CREATE TABLE IF NOT EXISTS account (balance INTEGER CHECK (balance >= 0))")
database.execute("CREATE TABLE IF NOT EXISTS payment (amount INTEGER)")
database.execute("INSERT INTO account SELECT 100 WHERE NOT EXISTS (SELECT 1 FROM account)")


def pay(amount: int) -> None:
    rate()
    database.execute("BEGIN IMMEDIATE")
    try:
        database.execute("INSERT INTO payment VALUES (?)", (amount,))
        database.execute("UPDATE account SET balance = balance - ?", (amount,))
        database.execute("COMMIT")
    except sqlite3.Error:
        database.execute("ROLLBACK")
        raise


class Handler(BaseHTTPRequestHandler):
    """Pays."""

    def do_GET(self) -> None:
        status, asked = 200, urlsplit(self.path)
        if asked.path == "/pay":
            try:
                pay(int(parse_qs(asked.query)["amount"][0]))
            except Exception:
                traceback.print_exc()
                status = 500
        self.send_response(status)
        self.end_headers()
        self.wfile.write(b"paid" if status == 200 else b"failed")

    def log_message(self, *_words: object) -> None:
        pass


HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
