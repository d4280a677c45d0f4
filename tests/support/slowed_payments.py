"""The payments example, in which an account takes its time between being read and being kept, so that its race is soon lost.

Run it as ``uvicorn slowed_payments:app --app-dir tests/support``. Without this the failure comes by chance, on a busy machine late.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "payments"))

import ledger
from app import app

__all__ = ["app"]

_read_account = ledger.Ledger._read_account


def _read_slowly(self, account_id):
    account = _read_account(self, account_id)
    if not self._writing._is_owned():  # not while everybody waits
        time.sleep(0.3)
    return account


ledger.Ledger._read_account = _read_slowly
