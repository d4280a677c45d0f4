"""One connection of HTTP/1 into a branch: answers in the order of the requests."""

from __future__ import annotations

import asyncio
import socket
import time
from collections import deque
from collections.abc import Callable, Sequence

from relive.model.outcome import End
from relive.recording.http1 import AnswerFramer, AnswerHead, Body, MessageEnd, Piece, Stream
from relive.replay.hanging_up import hang_up
from relive.replay.received import ReceivedAnswer

__all__ = ["Http1Connection"]

_READ = 1 << 16  # [bytes]


class Http1Connection:
    """As ``BranchConnection``. Answers come in the order in which the requests were sent.

    Attributes:
        is_kept: it was there before what is sent now.
    """

    def __init__(self, sock: socket.socket, *, is_kept: bool = False) -> None:
        self.sock = sock
        self.is_kept = is_kept
        self.framer = AnswerFramer()
        self._answers = asyncio.Lock()
        self._pieces: deque[Piece] = deque()  # of answers that nobody has read yet

    @property
    def has_ended_idle(self) -> bool:
        """The service has closed it, and nothing is under way on it: what is sent now is read by nobody."""
        if self._answers.locked() or self._pieces:
            return False
        try:
            return not self.sock.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except ConnectionError:
            return True

    def take_stream(self) -> bytes:
        """What has come behind the answer that granted an upgrade; it is given out once."""
        pieces = [self._pieces.popleft() for _ in range(len(self._pieces))]
        return b"".join([piece.raw for piece in pieces if isinstance(piece, Stream)])

    async def hang_up(self) -> None:
        """Close it, as soon as nothing more is to come."""
        async with self._answers:
            hang_up(self.sock)

    def close(self) -> None:
        """Close it."""
        self.sock.close()

    async def exchange(
        self,
        data: bytes,
        methods: Sequence[bytes],
        answer: ReceivedAnswer,
        on_sent: Callable[[], None] = lambda: None,
    ) -> None:
        """Send requests, and fill in the answer to the first of them until it is whole or the connection ends.

        Args:
            methods: of the requests; none where this one was sent together with the one before.
            on_sent: called before the answer is waited for; until then no other request may be sent.
        """
        began = time.monotonic()
        for method in methods:
            self.framer.expect(method)
        try:
            await asyncio.get_running_loop().sock_sendall(self.sock, data)
            on_sent()
            async with self._answers:
                await self._read(answer)
        except OSError as error:
            answer.end, answer.was_reset = End.BROKEN, isinstance(error, ConnectionError)
        answer.seconds = time.monotonic() - began
        self.is_kept = True

    async def _read(self, answer: ReceivedAnswer) -> None:
        loop = asyncio.get_running_loop()
        is_closed = False
        while True:
            while self._pieces:
                piece = self._pieces.popleft()
                if isinstance(piece, AnswerHead):
                    answer.status, answer.head = piece.status, piece.raw
                elif isinstance(piece, Body | Stream):
                    answer.body += piece.raw
                elif isinstance(piece, MessageEnd):
                    answer.end = End.ANSWERED
                    return
            if is_closed:
                answer.end = End.BROKEN
                return
            data = await loop.sock_recv(self.sock, _READ)
            is_closed = not data
            self._pieces += self.framer.feed(data) if data else self.framer.eof()
