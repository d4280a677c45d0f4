"""A recorded dialogue continued at every place where a commit could have found it: what comes down is what was recorded."""

from __future__ import annotations

import os

from protocols.answering import bytes_of
from relive.protocols.pool import Pool
from relive.protocols.session import Protocol, Resume
from relive.recording.dialogues import Dialogue, Way

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


def assert_it_continues_everywhere(protocol: Protocol, dialogue: Dialogue, *, most: int = 2000) -> None:
    """The service says the rest of what it had said, at once or bit by bit; at no more than ``most`` places, evenly chosen."""
    said, heard = dialogue.text(Way.UP), dialogue.text(Way.DOWN)
    calls = protocol.calls(dialogue)
    places = standings(dialogue)
    for at, (up, down) in enumerate(places[:: -(-len(places) // most)]):
        pool = Pool([call for call in calls if call.up[1] > up])
        session, acts = protocol.resume(pool, 1, Resume(dialogue, up, down))
        got = heard[:down] + bytes_of(acts)
        rest = said[up:]
        size = max(1, len(rest) // (1 if at % 2 else 50))
        for begin in range(0, len(rest), size):
            got += bytes_of(session.feed(rest[begin : begin + size]))
        same = os.path.commonprefix((got, heard))  # noqa: RUF071  of bytes, which is meant
        assert got == heard, (
            f"at {up} up, {down} down: {got[len(same) :][:60]!r}, not {heard[len(same) :][:60]!r}"
        )
