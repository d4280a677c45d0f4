"""Dialogues with PostgreSQL written by hand: what each end said and when, without a server."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from relive.protocols.call import Call
from relive.protocols.pool import Pool, PoolMatch
from relive.protocols.postgres import PostgreSQL
from relive.protocols.postgres.messages import Column, build, ready, row, row_description, status
from relive.protocols.session import Act, Send, Session
from relive.recording.dialogues import Dialogue, DialoguePiece, DirectionEnd, Way

__all__ = [
    "MS",
    "OPENING",
    "STARTUP",
    "TO",
    "bind",
    "conversation",
    "described",
    "execute",
    "opened",
    "parse",
    "pool_of",
    "query",
    "said",
    "selected",
    "startup",
]

MS = 1_000_000
TO = ("10.0.0.5", 5432)


def startup(code: int = 3 << 16, **parameters: str) -> bytes:
    words = b"".join(name.encode() + b"\0" + value.encode() + b"\0" for name, value in parameters.items())
    return struct.pack("!II", len(words) + 9, code) + words + b"\0"


STARTUP = startup(user="ann", database="shop")
OPENING = (
    build("R", b"\0\0\0\0")
    + status("server_version", "15.4")
    + status("TimeZone", "Etc/UTC")
    + build("K", b"\0\0\0\x2a\1\2\3\4")
    + ready("I")
)


def query(text: str) -> bytes:
    return build("Q", text.encode() + b"\0")


def parse(text: str, name: str = "", types: Sequence[int] = ()) -> bytes:
    told = struct.pack(f"!H{len(types)}I", len(types), *types)
    return build("P", name.encode() + b"\0" + text.encode() + b"\0" + told)


def bind(*values: bytes | None, statement: str = "", portal: str = "", formats: Sequence[int] = ()) -> bytes:
    """``formats`` of results; parameters are text."""
    told = b"".join(
        struct.pack("!i", -1) if one is None else struct.pack("!i", len(one)) + one for one in values
    )
    asked = struct.pack(f"!H{len(formats)}h", len(formats), *formats)
    names = portal.encode() + b"\0" + statement.encode() + b"\0"
    return build("B", names + b"\0\0" + struct.pack("!H", len(values)) + told + asked)


def described(which: str, name: str = "") -> bytes:
    return build("D", which.encode() + name.encode() + b"\0")


def execute(portal: str = "", limit: int = 0) -> bytes:
    return build("E", portal.encode() + b"\0" + struct.pack("!i", limit))


def selected(*values: str, name: str = "n", oid: int = 25, tag: str = "", described: bool = True) -> bytes:
    """RowDescription, rows of one column, CommandComplete."""
    columns = row_description([Column(name, 0, 0, oid, -1, -1, 0)]) if described else b""
    rows = b"".join(row([value.encode()]) for value in values)
    return columns + rows + build("C", (tag or f"SELECT {len(values)}").encode() + b"\0")


def conversation(
    *said: tuple[str, int, bytes], number: int = 1, ended: Sequence[tuple[str, int, str]] = ()
) -> Dialogue:
    """A dialogue. ``said``: ("up" or "down", milliseconds since the one before, bytes); ``ended``: (way, milliseconds, how)."""
    dialogue = Dialogue(number, TO, ("10.0.0.9", 40_000 + number), number * 10**12, 1)
    places = {Way.UP: 0, Way.DOWN: 0}
    now = dialogue.opened_mono_ns
    for seq, (name, after, data) in enumerate(said, 2):
        way = Way(name)
        now += after * MS
        dialogue.pieces.append(DialoguePiece(way, places[way], data, now, seq))
        places[way] += len(data)
    for seq, (name, after, how) in enumerate(ended, len(said) + 2):
        now += after * MS
        dialogue.endings[Way(name)] = DirectionEnd(how, places[Way(name)], 0, now, seq)
    return dialogue


def pool_of(*dialogues: Dialogue, seen: list[PoolMatch] | None = None) -> Pool:
    calls: list[Call] = [call for dialogue in dialogues for call in PostgreSQL().calls(dialogue)]
    return Pool(
        sorted(calls, key=lambda call: call.asked_mono_ns), on_found=(seen if seen is not None else []).append
    )


def said(acts: Sequence[Act]) -> bytes:
    return b"".join(act.data for act in acts if isinstance(act, Send))


def opened(pool: Pool) -> Session:
    """A new connection that has been opened."""
    session = PostgreSQL().open(pool, 1, to=TO)
    session.feed(STARTUP)
    return session
