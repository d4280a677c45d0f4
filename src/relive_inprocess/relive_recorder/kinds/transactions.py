"""Statements that begin and end transactions: every server answers them alike, so that a replay needs no recorded answer.

The same are known at the border (``relive.protocols.postgres.builtin_answers``). A fix that is tried against a recorded failure
may well commit where the recorded request had rolled back.
"""

from typing import Optional, Tuple

__all__ = ["transaction_end"]

_LONGEST = 200  # [characters]
_SAME = {"COMMIT": "COMMIT", "END": "COMMIT", "ROLLBACK": "ROLLBACK", "ABORT": "ROLLBACK"}
_WITHIN = {"BEGIN": "BEGIN", "SAVEPOINT": "SAVEPOINT", "RELEASE": "RELEASE"}


def transaction_end(statement: object) -> Optional[Tuple[str, bool]]:
    """(command tag, whether a transaction is open behind it); None for any other statement, and for several in one."""
    if type(statement) is not str or len(statement) > _LONGEST:
        return None
    words = statement.strip().rstrip(";").upper().split()
    if not words or ";" in statement.strip().rstrip(";") or "PREPARED" in words:
        return None
    first = words[0]
    if first == "START" and words[1:2] == ["TRANSACTION"]:
        return "START TRANSACTION", True
    if first in _WITHIN:
        return _WITHIN[first], True
    if first not in _SAME:
        return None
    goes_on = "TO" in words or ("CHAIN" in words and "NO" not in words)
    return _SAME[first], goes_on
