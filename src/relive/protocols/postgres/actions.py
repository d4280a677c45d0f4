"""What a session wants done, gathered: bytes that go out together are one Send."""

from __future__ import annotations

from collections.abc import Iterable

from relive.protocols.call import CallEnd, Timed
from relive.protocols.postgres.answer_parts import TrailingMessages
from relive.protocols.session import Act, Close, Reset, Send

__all__ = ["Actions"]


class Actions:
    """Acts on their way.

    Attributes:
        over: nothing more is said on this connection.
        skip: bytes that the service has already: so many are left out of what is said next.
    """

    def __init__(self) -> None:
        self.over = False
        self.skip = 0
        self._acts: list[Act] = []

    def drain(self) -> list[Act]:
        """What was gathered since the last call."""
        acts, self._acts = self._acts, []
        return acts

    def send(self, chunks: Iterable[Timed], *, unasked: bool = False) -> None:
        """Send chunks."""
        if self.over:
            return
        for chunk in chunks:
            data = chunk.data
            if self.skip:
                data, self.skip = data[self.skip :], max(0, self.skip - len(data))
            if data:
                self._send(data, chunk.after_ns, unasked)

    def say_now(self, data: bytes) -> None:
        """Send bytes at once."""
        self.send((Timed(0, data),))

    def _send(self, data: bytes, after_ns: int, unasked: bool) -> None:
        last = self._acts[-1] if self._acts else None
        if isinstance(last, Send) and after_ns == 0:
            self._acts[-1] = Send(last.data + data, last.after_ns, last.unasked)
        else:
            self._acts.append(Send(data, after_ns, unasked))

    def end(self, how: CallEnd, after_ns: int) -> None:
        """As a recorded call ended that was not answered: closed or broken by the server; or it is silent from now on."""
        if how is CallEnd.RESET:
            self._acts.append(Reset(after_ns))
        elif how is CallEnd.CLOSED:
            self._acts.append(Close(after_ns))
        self.over = True

    def close(self, after_ns: int = 0) -> None:
        """Close the connection."""
        if not self.over:
            self.end(CallEnd.CLOSED, after_ns)

    def follow(self, trail: TrailingMessages) -> None:
        """What came unasked, and the end of an idle connection."""
        self.send(trail.said, unasked=True)
        if trail.ended is not None and not self.over:
            end = Reset if trail.ended == "reset" else Close
            self._acts.append(end(trail.after_ns, unasked=True))
            self.over = True
