"""One connection of HTTP/2 into a branch: requests side by side, each a stream, sent and read by ``h2``."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import (
    ConnectionTerminated,
    DataReceived,
    Event,
    InformationalResponseReceived,
    ResponseReceived,
    StreamEnded,
    StreamReset,
    TrailersReceived,
)
from h2.exceptions import H2Error

from relive.model.outcome import End
from relive.recording.http2 import answer_head, parse_head
from relive.replay.received import ReceivedAnswer

__all__ = ["Http2Connection"]

_READ = 1 << 16  # [bytes]
_WINDOW = (1 << 31) - 1  # [bytes] that the service may send before it is told to go on


@dataclass(slots=True)
class _Asked:
    """A stream; ``is_over`` is set when nothing more comes on it."""

    answer: ReceivedAnswer
    is_over: asyncio.Event = field(default_factory=asyncio.Event)


class Http2Connection:
    """As ``BranchConnection``, whose callers need not know which of the two they have.

    Attributes:
        is_kept: it was there before what is sent now.
    """

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.is_kept = False
        self._http = H2Connection(H2Configuration(client_side=True, validate_outbound_headers=False))
        self._http.initiate_connection()
        self._http.increment_flow_control_window(_WINDOW - 65535)
        self._asked: dict[int, _Asked] = {}
        self._may_send = asyncio.Event()  # set with each frame that comes
        self._sending = asyncio.Lock()
        self._reading: asyncio.Task[None] | None = None

    @property
    def has_ended_idle(self) -> bool:
        """The service has closed it, and nothing is under way on it."""
        return not self._asked and self._reading is not None and self._reading.done()

    def take_stream(self) -> bytes:
        """Nothing: it is no upgrade of HTTP/1."""
        return b""

    async def hang_up(self) -> None:
        """Close it, as soon as nothing more is to come."""
        for asked in list(self._asked.values()):
            await asked.is_over.wait()
        self.close()

    def close(self) -> None:
        """Close it."""
        if self._reading is not None:
            self._reading.cancel()
        self.sock.close()

    async def exchange(
        self,
        data: bytes,
        methods: Sequence[bytes],  # noqa: ARG002 - answers name their streams here
        answer: ReceivedAnswer,
        on_sent: Callable[[], None] = lambda: None,
    ) -> None:
        """Send a request, as ``Exchange.request_bytes`` has it, and fill in its answer until it is whole or will never be.

        Args:
            methods: as of ``BranchConnection``.
            on_sent: called before the answer is waited for.
        """
        began = time.monotonic()
        head, _, body = data.partition(b"\r\n\r\n")
        if self._reading is None:
            self._reading = asyncio.create_task(self._read())
        asked = _Asked(answer)
        stream = self._http.get_next_available_stream_id()
        self._asked[stream] = asked
        try:
            self._http.send_headers(stream, parse_head(head + b"\r\n\r\n"), end_stream=not body)
            await self._send_body(stream, asked, body)
            on_sent()
            await asked.is_over.wait()
        except (OSError, H2Error) as error:
            answer.end, answer.was_reset = End.BROKEN, isinstance(error, ConnectionError)
        finally:
            self._asked.pop(stream, None)
        answer.seconds = time.monotonic() - began
        self.is_kept = True

    async def _send_body(self, stream: int, asked: _Asked, body: bytes) -> None:
        await self._flush()
        at = 0
        while at < len(body) and not asked.is_over.is_set():
            self._may_send.clear()
            most = min(self._http.local_flow_control_window(stream), self._http.max_outbound_frame_size)
            if most <= 0:
                await self._may_send.wait()
                continue
            part = body[at : at + most]
            at += len(part)
            self._http.send_data(stream, part, end_stream=at == len(body))
            await self._flush()

    async def _flush(self) -> None:
        async with self._sending:
            await asyncio.get_running_loop().sock_sendall(self.sock, self._http.data_to_send())

    async def _read(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while data := await loop.sock_recv(self.sock, _READ):
                for event in self._http.receive_data(data):
                    self._act(event)
                self._may_send.set()
                await self._flush()
        except (OSError, H2Error):
            pass  # as when the service closes: what is under way is broken
        finally:
            for asked in self._asked.values():
                self._end(asked, End.BROKEN)
            self._may_send.set()

    def _act(self, event: Event) -> None:
        if isinstance(event, DataReceived):
            self._http.acknowledge_received_data(event.flow_controlled_length or 0, event.stream_id or 0)
        if isinstance(event, ConnectionTerminated | InformationalResponseReceived):
            return
        asked = self._asked.get(getattr(event, "stream_id", None) or 0)
        if asked is None:
            return
        if isinstance(event, ResponseReceived):
            headers = tuple((bytes(name), bytes(value)) for name, value in event.headers or ())
            asked.answer.status = int(dict(headers)[b":status"])
            asked.answer.head = answer_head(headers)
        elif isinstance(event, TrailersReceived):
            pairs = ((bytes(name), bytes(value)) for name, value in event.headers or ())
            asked.answer.trailers = [
                (name.decode("latin-1"), value.decode("latin-1")) for name, value in pairs
            ]
        elif isinstance(event, DataReceived):
            asked.answer.body += event.data or b""
        elif isinstance(event, StreamEnded):
            self._end(asked, End.ANSWERED)
        elif isinstance(event, StreamReset):
            self._end(asked, End.BROKEN)

    @staticmethod
    def _end(asked: _Asked, how: End) -> None:
        if not asked.is_over.is_set():
            asked.answer.end = how
            asked.is_over.set()
