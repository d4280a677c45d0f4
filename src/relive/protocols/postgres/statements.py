"""What can be told of a statement from its text, without understanding SQL: enough to match it and to follow a transaction.

Comments before a statement are passed over; text in quotes is never taken for words.
"""

from __future__ import annotations

import functools
import re

__all__ = [
    "describe_statement",
    "ends_transaction",
    "is_read",
    "split",
    "state_after",
    "without_comments",
    "words_of",
]

# Names that libraries make from a counter, an address or a random number (asyncpg, Django, SQLAlchemy, psycopg2): no choice of the
# service. They stand in statements that begin with one of these words.
_WITH_NAMES = frozenset("SAVEPOINT RELEASE ROLLBACK FETCH CLOSE MOVE DECLARE".split())
_MADE_NAME = re.compile(
    r"__asyncpg_savepoint_[0-9a-f]+__|\b_pg3_[0-9a-f]+\b|\bs[0-9]+_x[0-9]+\b|_django_curs_[0-9]+_\w+_[0-9]+"
    r"|\bc_[0-9a-f]+_[0-9a-f]+\b"
)
_COMMENT = re.compile(r"(?:\s+|--[^\n]*(?:\n|$)|/\*.*?\*/|;)*", re.DOTALL)
# What is no word: strings, quoted names, dollar quotes, comments. Each has an alternative that ends with the text, so that nothing
# is looked for twice.
_NO_WORDS = re.compile(
    r"""'(?:[^'\\]|''|\\.)*(?:'|$)|"[^"]*(?:"|$)|\$(?P<tag>\w*)\$.*?(?:\$(?P=tag)\$|$)|--[^\n]*|/\*.*?(?:\*/|$)""",
    re.DOTALL,
)
_WORD = re.compile(r"[A-Z_][A-Z_0-9$]*")
# [characters] of a statement that are looked through; one that is longer is taken for a write.
_LONGEST = 100_000
_READS = frozenset("SELECT SHOW VALUES TABLE WITH EXPLAIN".split())
_WRITES = frozenset("INSERT UPDATE DELETE MERGE INTO TRUNCATE CREATE DROP ALTER CALL ANALYZE REFRESH".split())
# Functions that change something, or give something else each time they are asked.
_CHANGING = frozenset(
    (
        "NEXTVAL SETVAL SET_CONFIG PG_NOTIFY LO_CREATE LO_UNLINK LO_IMPORT LO_EXPORT LOWRITE TXID_CURRENT"
        " PG_CURRENT_XACT_ID PG_TERMINATE_BACKEND PG_CANCEL_BACKEND DBLINK_EXEC"
    ).split()
)
_ENDS = frozenset("COMMIT END ROLLBACK ABORT".split())


def without_comments(statement: str) -> str:
    """The statement from its first word on, without the semicolon and white space at its end."""
    found = _COMMENT.match(statement)
    return statement[found.end() if found else 0 :].rstrip(" \t\r\n;")


@functools.lru_cache(maxsize=1024)
def words_of(statement: str) -> tuple[str, ...]:
    """Its words in capitals, without what is quoted."""
    return tuple(_WORD.findall(_NO_WORDS.sub(" ", statement[:_LONGEST]).upper()))


def describe_statement(statement: str) -> str:
    """The statement as it is matched and shown: names that a library made are ``<name>``, as the recorder in processes has it."""
    first = statement[:16].lstrip().split(" ", 1)[0].upper()
    return _MADE_NAME.sub("<name>", statement) if first in _WITH_NAMES else statement


@functools.lru_cache(maxsize=1024)
def is_read(statement: str) -> bool:
    """Whether it only reads, so that its answer may be given once more.

    It begins with SELECT, SHOW, VALUES, TABLE, WITH or EXPLAIN, and has no word that writes or locks, nor the name of a function of
    PostgreSQL's own that does. A function of the service's own that writes is not recognised.
    """
    if len(statement) > _LONGEST:
        return False
    words = words_of(statement)
    if not words or words[0] not in _READS:
        return False
    present = frozenset(words)
    if present & _WRITES or present & _CHANGING or ("FOR" in present and (present & {"UPDATE", "SHARE"})):
        return False
    return not any(word.startswith(("PG_ADVISORY", "PG_TRY_ADVISORY")) for word in present)


def ends_transaction(statement: str) -> bool:
    """Whether a server takes it in a transaction that failed."""
    words = words_of(statement)
    return bool(words) and words[0] in _ENDS


def state_after(state: str, statement: str, tags: tuple[str, ...]) -> str:
    """The state of ReadyForQuery after a statement that was done.

    Args:
        state: before; "I", "T" or "E".
        tags: of its CommandCompletes.
    """
    for tag in tags:
        if tag in ("BEGIN", "START TRANSACTION"):
            state = "T"
        elif tag in ("COMMIT", "PREPARE TRANSACTION"):
            state = "T" if _goes_on(statement) else "I"
        elif tag == "ROLLBACK":
            words = words_of(statement)
            to_savepoint = len(tags) == 1 and "TO" in words
            state = "T" if to_savepoint or _goes_on(statement) else "I"
    return state


def _goes_on(statement: str) -> bool:
    """COMMIT AND CHAIN."""
    words = words_of(statement)
    return "CHAIN" in words and "NO" not in words


def split(statement: str) -> list[str]:
    """The statements of a Query, without comments before them; those that are empty are left out."""
    blank = _NO_WORDS.sub(lambda found: " " * len(found[0]), statement)
    found: list[str] = []
    begin = 0
    for end in (*(place for place, letter in enumerate(blank) if letter == ";"), len(statement)):
        one = without_comments(statement[begin:end])
        if one:
            found.append(one)
        begin = end + 1
    return found
