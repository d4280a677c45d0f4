"""When which byte of a dialogue came: answers cut out of it with their pauses, and how it ended."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

from relive.protocols.call import CallEnd, Timed
from relive.protocols.session import Act, Close, Reset, Send
from relive.recording.dialogues import Dialogue, Way

__all__ = ["Timing", "ending_acts", "rest_of", "sends"]


class _Direction:
    """One direction: where each piece begins, when it came."""

    def __init__(self, dialogue: Dialogue, way: Way) -> None:
        self.begins: list[int] = []
        self.times: list[int] = []
        parts: list[bytes] = []
        place = 0
        for piece in dialogue.of(way):
            if piece.data:
                self.begins.append(place)
                self.times.append(piece.mono_ns)
                parts.append(piece.data)
                place += len(piece.data)
        self.text = b"".join(parts)

    def time_of(self, place: int, default: int) -> int:
        """When the byte at a place came."""
        index = bisect_right(self.begins, place) - 1
        return self.times[index] if index >= 0 else default


class Timing:
    """The times of one dialogue.

    Attributes:
        up, down: all bytes of a direction.
    """

    def __init__(self, dialogue: Dialogue) -> None:
        self._dialogue = dialogue
        self._up = _Direction(dialogue, Way.UP)
        self._down = _Direction(dialogue, Way.DOWN)
        self.up = self._up.text
        self.down = self._down.text

    def asked_ns(self, place: int) -> int:
        """When the byte of a question at a place came; at the end of all when the last did."""
        return self._up.time_of(place, self._dialogue.opened_mono_ns)

    def answered_ns(self, place: int) -> int:
        """When the byte of an answer at a place came."""
        return self._down.time_of(place, self._dialogue.opened_mono_ns)

    def pieces(self, up_end: int, begin: int, end: int) -> tuple[Timed, ...]:
        """Bytes of answers from place to place, the first so long after the end of the question, or of the answer before."""
        since = self.asked_ns(up_end - 1) if up_end else self._dialogue.opened_mono_ns
        if begin:
            since = max(since, self.answered_ns(begin - 1))
        found: list[Timed] = []
        index = max(0, bisect_right(self._down.begins, begin) - 1)
        while begin < end:
            known = index + 1 < len(self._down.begins)
            stop = min(end, self._down.begins[index + 1] if known else end)
            time = self._down.times[index]
            found.append(Timed(max(0, time - since), self.down[begin:stop]))
            since, begin, index = max(since, time), stop, index + 1
        return tuple(found)

    def end(self) -> tuple[CallEnd, int | None]:
        """How the connection ended, for a call that it left without an answer, and when (None while it is open).

        What the first end to go did is what counts: the other one's end follows from it. Where not all that was said was kept, it
        is not known what became of the call: it is open.
        """
        if any(ending.cut for ending in self._dialogue.endings.values()):
            return CallEnd.OPEN, None
        endings = [
            (ending.mono_ns, ending.seq, way, ending.how)
            for way, ending in self._dialogue.endings.items()
            if ending.how != "lost"
        ]
        if not endings:
            return CallEnd.OPEN, None
        when, _, way, how = min(endings)
        if way is Way.UP:
            return CallEnd.GIVEN_UP, when
        return (CallEnd.RESET if how == "reset" else CallEnd.CLOSED), when

    def end_after_ns(self, up_end: int, down_end: int) -> int:
        """From the last byte before both places to the end of the connection."""
        _, when = self.end()
        last = max(
            self.asked_ns(up_end - 1) if up_end else self._dialogue.opened_mono_ns,
            self.answered_ns(down_end - 1) if down_end else self._dialogue.opened_mono_ns,
        )
        return max(0, (when or last) - last)


def rest_of(pieces: Iterable[Timed], given: int) -> tuple[Timed, ...]:
    """Pieces without their first ``given`` bytes; what is left of a piece of which a part was given comes at once."""
    rest: list[Timed] = []
    for piece in pieces:
        if given >= len(piece.data):
            given -= len(piece.data)
        elif given:
            rest.append(Timed(0, piece.data[given:]))
            given = 0
        else:
            rest.append(piece)
    return tuple(rest)


def sends(pieces: Iterable[Timed], *, unasked: bool = False) -> list[Act]:
    """To send pieces as they came."""
    return [Send(piece.data, piece.after_ns, unasked) for piece in pieces]


def ending_acts(end: CallEnd, after_ns: int) -> list[Act]:
    """What the other end did to a call that it did not answer: nothing, unless it ended the connection."""
    if end is CallEnd.CLOSED:
        return [Close(after_ns)]
    if end is CallEnd.RESET:
        return [Reset(after_ns)]
    return []
