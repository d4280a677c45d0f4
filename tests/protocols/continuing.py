"""A recorded dialogue continued at every place where a commit could have found it: what comes down is what was recorded."""

from __future__ import annotations

from relive.protocols.pool import Pool
from relive.protocols.session import Protocol, Resume
from relive.record.dialogues import Dialogue, Way

from protocols.answering import bytes_of

__all__ = ["assert_it_continues_everywhere", "standings"]


def standings(dialogue: Dialogue) -> list[tuple[int, int]]:
    """All places (up, down) that the connection went through, byte by byte."""
    up = down = 0
    found = [(0, 0)]
    for piece in dialogue.pieces:
        for _ in piece.data:
            up, down = (up + 1, down) if piece.way is Way.UP else (up, down + 1)
            found.append((up, down))
    return found


def assert_it_continues_everywhere(protocol: Protocol, dialogue: Dialogue, *, step: int = 1) -> int:
    """The service says the rest of what it had said, whole or byte by byte; the number of places is returned."""
    said, heard = dialogue.text(Way.UP), dialogue.text(Way.DOWN)
    calls = protocol.calls(dialogue)
    places = standings(dialogue)[::step]
    for at, (up, down) in enumerate(places):
        pool = Pool([call for call in calls if call.up[1] > up])
        session, acts = protocol.resume(pool, 1, Resume(dialogue, up, down))
        got = heard[:down] + bytes_of(acts)
        rest = said[up:]
        for part in [rest] if at % 2 else [rest[one : one + 1] for one in range(len(rest))]:
            got += bytes_of(session.feed(part))
        assert got == heard, f"continued at {up} up, {down} down"
    return len(places)
