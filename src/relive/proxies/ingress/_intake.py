"""What a client has sent and what has not gone on to the service yet: bytes as they came, and what they were framed into.

Nothing here writes or sends. ``ClientConnection`` takes from it what may go on, one piece at a time, so that a gate that
closes or a request that is held stops everything behind it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from relive.proxies.ingress._speech import Speech, speech_of
from relive.recording.http1 import Piece, RequestFramer, RequestHead

__all__ = ["Intake", "NumberedRequest", "Waiting"]


class NumberedRequest(NamedTuple):
    """A request that was held and may go on."""

    number: int
    head: RequestHead


Waiting: TypeAlias = Piece | NumberedRequest


class Intake:
    """Bytes go from ``raw`` to ``pieces``; where they are not HTTP they stay in ``raw`` and go on as they are.

    Attributes:
        pieces: framed, not handed on yet.
        raw_bytes: how many are not framed yet.
        is_plain: it is not HTTP, or not such as is read here.
    """

    def __init__(
        self,
        on_http: Callable[[], None],
        on_plain: Callable[[str], None],
        on_http2: Callable[[], None] | None = None,
    ) -> None:
        """
        Args:
            on_http: called when the client's first bytes say that it speaks HTTP/1.
            on_plain: called, with the reason, when the connection turns out to be something else.
            on_http2: called when it is HTTP/2, whose bytes are for ``pop_raw``; None: that is something else, too.
        """
        self._on_http = on_http
        self._on_plain = on_plain
        self._on_http2 = on_http2
        self._framer = RequestFramer()
        self._raw: deque[bytes] = deque()
        self.raw_bytes = 0
        self.pieces: deque[Waiting] = deque()
        self.is_plain = False
        # What came before it was known what the client speaks; None: it is known.
        self._opening: bytes | None = b""

    def add(self, data: bytes) -> None:
        """The client's next bytes."""
        self._raw.append(data)
        self.raw_bytes += len(data)

    @property
    def has_raw(self) -> bool:
        """There are bytes that are not framed yet."""
        return bool(self._raw)

    @property
    def has_more(self) -> bool:
        """Something waits that can go on; the beginning of a first line cannot."""
        return bool(self.pieces or self._raw)

    @property
    def is_empty(self) -> bool:
        """Nothing waits."""
        return not (self.pieces or self._raw or self._opening)

    @property
    def has_part_of_head(self) -> bool:
        """The client has sent the beginning of a request's head, or of what may be one."""
        return bool(self._opening) or (self._framer.held > 0 and not self._framer.waits_for_answer)

    @property
    def is_between(self) -> bool:
        """The client's next byte begins a request."""
        return self.is_empty and self._opening is None and not self.is_plain and self._framer.is_between

    @property
    def held_for_answer(self) -> int:
        """Bytes behind a request for an upgrade, whose meaning only its answer tells."""
        return self._framer.held if self._framer.waits_for_answer else 0

    def pop_raw(self) -> bytes:
        """The next bytes as they came; there are some."""
        data = self._raw.popleft()
        self.raw_bytes -= len(data)
        return data

    def frame(self, *, is_last: bool) -> bool:
        """Make pieces of the next bytes; False if that cannot be.

        Args:
            is_last: the client sends no more.
        """
        if self._raw and self._opening is not None:
            self._judge(self._opening + self.pop_raw())
        elif self._raw:
            self.pieces.extend(self._framer.feed(self.pop_raw()))
        elif self._opening and is_last:  # a line without end
            self.become_plain("it ended within its first line")
        else:
            return False
        return True

    def _judge(self, opening: bytes) -> None:
        """Learn from the client's first bytes what it speaks."""
        self._opening = opening
        speech = speech_of(opening)
        if speech is Speech.HTTP:
            self._on_http()
            self.pieces.extend(self._framer.feed(opening))
            self._opening = None
        elif speech is Speech.HTTP_2 and self._on_http2 is not None:
            self.unread()
            self._on_http2()
        elif speech is not None:
            self.become_plain("the client does not speak HTTP/1")

    def unread(self) -> None:
        """What the client speaks is known: what was looked at is for ``pop_raw``."""
        held = self._opening or self._framer.give_up()
        if held:
            self._raw.appendleft(held)
            self.raw_bytes += len(held)
        self._opening = None

    def become_plain(self, why: str) -> None:
        """From here on bytes are passed on as they come."""
        self.unread()
        self.is_plain = True
        self._on_plain(why)

    def upgrade_decided(self, *, is_stream: bool) -> None:
        """The answer to a request for an upgrade has come: what the client sent after it has a meaning now."""
        self.pieces.extend(self._framer.become_stream() if is_stream else self._framer.resume())

    def knows_http(self) -> None:
        """The relay has judged the client before it handed the connection over."""
        self._opening = None

    def go_on_with_body(self, left: int) -> None:
        """The relay has framed a request's head and a part of its body, of which so many bytes are to come."""
        self._framer.go_on_with_body(left)
