"""Commands about the connection only: what they are answered when nothing was recorded for them.

A client that connects in a replay says things that it had said before the commit: these are answered here as a server of version 7
would, so that what was recorded after it can be asked for. Nothing of it depends on data.
"""

from __future__ import annotations

from relive.protocols.redis.commands import SUBSCRIBING, name_of
from relive.protocols.redis.resp import Said, encode
from relive.protocols.redis.state import RedisState

__all__ = ["housekeeping_answer", "is_housekeeping"]

_ALWAYS = (
    frozenset("HELLO AUTH SELECT PING ECHO QUIT RESET READONLY READWRITE WATCH UNWATCH ASKING".split())
    | SUBSCRIBING
)
_OF_CLIENT = frozenset("SETINFO SETNAME GETNAME ID REPLY TRACKING CACHING NO-EVICT NO-TOUCH".split())
_OK: Said = (b"+", b"OK")
_INFO = b"redis_version:7.0.0\r\nredis_mode:standalone\r\nloading:0\r\nrole:master\r\n"


def is_housekeeping(words: list[bytes]) -> bool:
    """It is about the connection only."""
    name = name_of(words)
    if name == "CLIENT":
        return len(words) > 1 and words[1].decode("latin-1").upper() in _OF_CLIENT
    return name in _ALWAYS


def housekeeping_answer(words: list[bytes], state: RedisState, connection: int) -> bytes | None:
    """What is said to it; None for other commands than these and INFO, which clients ask when they connect.

    Args:
        state: of the connection, the command included.
        connection: its number, which is its id too.
    """
    name = name_of(words)
    if name == "INFO":
        return encode((b"$", _INFO), state.version)
    if not is_housekeeping(words):
        return None
    if name in SUBSCRIBING:
        return _confirmations(name, words[1:], state)
    return encode(_said(name, words, state, connection), state.version)


def _said(name: str, words: list[bytes], state: RedisState, connection: int) -> Said:
    if name == "HELLO":
        fields: list[Said] = [
            *((b"$", b"server"), (b"$", b"redis"), (b"$", b"version"), (b"$", b"7.0.0")),
            *((b"$", b"proto"), (b":", state.version), (b"$", b"id"), (b":", connection)),
            *((b"$", b"mode"), (b"$", b"standalone"), (b"$", b"role"), (b"$", b"master")),
            *((b"$", b"modules"), (b"*", [])),
        ]
        return (b"%", fields)
    if name == "PING":
        if state.version == 2 and state.listens and not state.monitors:
            return (b"*", [(b"$", b"pong"), (b"$", words[1] if len(words) > 1 else b"")])
        return (b"$", words[1]) if len(words) > 1 else (b"+", b"PONG")
    if name == "ECHO" and len(words) > 1:
        return (b"$", words[1])
    if name == "RESET":
        return (b"+", b"RESET")
    if name == "CLIENT" and words[1].upper() == b"ID":
        return (b":", connection)
    if name == "CLIENT" and words[1].upper() == b"GETNAME":
        return (b"$", None)
    return _OK


def _confirmations(name: str, given: list[bytes], state: RedisState) -> bytes:
    kind = b">" if state.version == 3 else b"*"
    word = name.lower().encode()
    count = len(state.subscriptions("")) + len(state.subscriptions("P"))
    listed: list[bytes | None] = [*given] or [None]
    last = len(listed) - 1
    step = 1 if "UNSUB" not in name else -1
    return b"".join(
        encode(
            (kind, [(b"$", word), (b"$", channel), (b":", max(0, count - step * (last - at)))]),
            state.version,
        )
        for at, channel in enumerate(listed)
    )
