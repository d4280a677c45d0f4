"""Answers that need no recording, because they are the same from every server and every time.

Given only where no recorded answer is left, and told as simulated:

    BEGIN, START TRANSACTION, COMMIT, END, ROLLBACK, ABORT, SAVEPOINT, RELEASE, ROLLBACK TO
    SET, RESET, DISCARD, DEALLOCATE, CLOSE, LISTEN, UNLISTEN
    SELECT of one of PostgreSQL's functions for advisory locks, by itself
    SELECT 1 and an empty query, with which pools look whether a connection lives
    several of these in one Query

SET of a parameter that the server reports is followed by its ParameterStatus.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from relive.protocols.call import Timed
from relive.protocols.postgres.answer_parts import Parts
from relive.protocols.postgres.messages import Column, build, error, ready, row, row_description, status
from relive.protocols.postgres.statement_state import Role
from relive.protocols.postgres.statements import split, without_comments, words_of

__all__ = ["aborted_parts", "known_parts"]

_SAME_TAG = frozenset("BEGIN SAVEPOINT RELEASE SET RESET LISTEN UNLISTEN COMMIT ROLLBACK".split())
_OTHER_TAG = {"END": "COMMIT", "ABORT": "ROLLBACK", "START": "START TRANSACTION"}
_ADVISORY = re.compile(
    r"select\s+(?:pg_catalog\.)?(pg_(?:try_)?advisory_(?:xact_)?(?:un)?lock(?:_shared|_all)?)\s*\([^()']*\)"
    r"(?:\s+as\s+\"?(\w+)\"?)?",
    re.IGNORECASE,
)
_SELECT_1 = re.compile(r"select\s+1", re.IGNORECASE)
_SET = re.compile(
    r"set\s+(?:session\s+|local\s+)?(?:(?P<zone>time\s+zone)|(?P<names>names)|(?P<name>[\w.]+)\s*(?:=|\sto\s))"
    r"\s*(?:'(?P<text>[^']*)'|(?P<word>[\w.,\s+-]+))",
    re.IGNORECASE,
)
_BOOL, _INT4, _VOID = (16, 1), (23, 4), (2278, 4)
_BINARY = {"t": b"\1", "f": b"\0", "1": b"\0\0\0\1", "": b""}


def known_parts(
    statement: str, formats: tuple[int, ...], state: str, reported: Mapping[str, str]
) -> Parts | None:
    """The answer to a statement; None where it is not known.

    Args:
        formats: of results, as in Bind.
        state: of the transaction.
        reported: the parameters that the server tells of, with their values.
    """
    said = b""
    tags: list[str] = []
    columns: tuple[Column, ...] = ()
    statements = split(statement)
    for one in statements:
        found = _answer(one, formats, state)
        if found is None:
            return None
        tag, names, values = found
        columns = columns or names
        if names:
            said += row_description(names, formats) + row(values)
        said += build("C", tag.encode() + b"\0") if tag else build("I")
        tags.append(tag)
    if not statements:
        said = build("I")
    changed = b"".join(status(*pair) for one in statements for pair in _changed(one, reported))
    sync = changed + ready("I")
    return Parts(
        {Role.EXECUTE: (Timed(0, said),), Role.SYNC: (Timed(0, sync),)},
        tags=tuple(tags),
        columns=columns,
        types=(),
        simple=True,
        ready_at=len(changed) + 5,
    )


def aborted_parts() -> Parts:
    """What every server answers in a transaction that failed, to all but its end."""
    text = "current transaction is aborted, commands ignored until end of transaction block"
    return Parts({Role.PARSE: (Timed(0, error("25P02", text)),)}, failed=Role.PARSE)


def _answer(
    statement: str, formats: tuple[int, ...], state: str
) -> tuple[str, tuple[Column, ...], list[bytes | None]] | None:
    """(tag, columns, values of one row) of one statement."""
    words = words_of(statement)
    first = words[0] if words else ""
    if first == "COMMIT" and "PREPARED" in words:
        return None
    if first in ("COMMIT", "END") and state == "E":
        return "ROLLBACK", (), []
    if first in _SAME_TAG or first in _OTHER_TAG:
        return _OTHER_TAG.get(first, first), (), []
    if first in ("DISCARD", "DEALLOCATE"):
        what = words[1] if len(words) > 1 else ""
        is_told = first == "DISCARD" or what == "ALL"
        return f"{first} {what}".strip() if is_told else first, (), []
    if first == "CLOSE":
        return "CLOSE CURSOR ALL" if words[1:] == ("ALL",) else "CLOSE CURSOR", (), []
    if _SELECT_1.fullmatch(statement):
        return _row("?column?", _INT4, "1", formats)
    advisory = _ADVISORY.fullmatch(statement)
    if advisory is None:
        return None
    name = advisory[1].lower()
    # pg_advisory_unlock tells whether the lock was held: what was taken in a replay is.
    is_told = "_try_" in name or name.endswith(("unlock", "unlock_shared"))
    return _row(advisory[2] or name, _BOOL if is_told else _VOID, "t" if is_told else "", formats)


def _row(
    name: str, kind: tuple[int, int], text: str, formats: tuple[int, ...]
) -> tuple[str, tuple[Column, ...], list[bytes | None]]:
    column = Column(name, 0, 0, kind[0], kind[1], -1, 0)
    value = _BINARY[text] if formats[:1] == (1,) else text.encode()
    return "SELECT 1", (column,), [value]


def _changed(statement: str, reported: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    found = _SET.fullmatch(without_comments(statement))
    if found is None:
        return
    name = "timezone" if found["zone"] else "client_encoding" if found["names"] else found["name"].lower()
    parameter = next((one for one in reported if one.lower() == name), None)
    value = found["text"] if found["text"] is not None else found["word"].strip()
    if parameter is None or value.upper() == "DEFAULT":
        return
    yield parameter, value.upper() if parameter == "client_encoding" else value
