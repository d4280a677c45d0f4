"""Sending recorded requests into a branch, over sockets made in the branch's own network namespace.

Requests that shared a connection when they were recorded share one again; a connection that the commit holds is continued
over its forged client end. Requests that were sent before the answer to the one before (pipelining, RFC 9112 section 9.3.2) are so
again, and in one go where they had come in one. Everything runs in one event loop, without threads.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from relive.kernel.namespaces import in_network_of
from relive.model.commit import Manifest
from relive.model.outcome import End
from relive.recording.exchanges import Exchange
from relive.recording.http1 import AnswerFramer, AnswerHead, Body, MessageEnd, Piece, Stream
from relive.replay.plan import Hangup, Pace, ReplayPlan, ReplayStep

__all__ = ["BranchConnection", "ReceivedAnswer", "Sender", "service_address"]

_READ = 1 << 16  # [bytes]
_CONNECT_LIMIT = 5.0  # [s]
_ONE_GO_NS = 1_000_000  # [ns] requests on one connection that began within it had come together
_WAIT_LIMIT = 30.0  # [s] most that a request waits for earlier ones to end, should the branch answer slower


@dataclass(slots=True)
class ReceivedAnswer:
    """What came back for one request.

    Attributes:
        body: raw, chunk framing included.
        was_reset: the service had closed the connection without having read all that it was sent.
    """

    end: End = End.NO_ANSWER
    status: int | None = None
    head: bytes = b""
    body: bytearray = field(default_factory=bytearray)
    seconds: float | None = None
    was_reset: bool = False


class BranchConnection:
    """One connection into the branch. Answers come in the order in which the requests were sent.

    Attributes:
        answers: held by whose answer is being read.
        is_kept: it was there before what is sent now.
    """

    def __init__(self, sock: socket.socket, *, is_kept: bool = False) -> None:
        self.sock = sock
        self.is_kept = is_kept
        self.framer = AnswerFramer()
        self.answers = asyncio.Lock()
        self._pieces: deque[Piece] = deque()  # of answers that nobody has read yet

    @property
    def has_ended_idle(self) -> bool:
        """The service has closed it, and nothing is under way on it: what is sent now is read by nobody."""
        if self.answers.locked() or self._pieces:
            return False
        try:
            return not self.sock.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except ConnectionError:
            return True

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
            async with self.answers:
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


class Sender:
    """Carries out one plan in one branch.

    Args:
        init: host pid of the branch's process 1.
        address: where the service listens inside.
        peers: descriptors of the forged client ends by their port; they belong to the sender afterwards.
        limit: seconds to wait for the answer to the subject.
        speed: recorded times are divided by it.

    Attributes:
        answers: what came back, by the requests' numbers.
        sent_anew: requests whose connection the service had closed before they came, which have got another one.
        ports: from which each was sent.
    """

    def __init__(
        self,
        init: int,
        address: tuple[str, int],
        peers: dict[int, int],
        *,
        pace: Pace,
        limit: float,
        cursor: int,
        speed: float = 1.0,
    ) -> None:
        self._init = init
        self._address = address
        self._forged = {port: _forged_socket(descriptor) for port, descriptor in peers.items()}
        self._pace = pace
        self._limit = limit
        self._cursor = cursor
        self._speed = speed
        self._connections: dict[int, BranchConnection] = {}
        self._ended: dict[int, asyncio.Event] = {}
        self._sent: dict[int, asyncio.Event] = {}
        self._before: dict[int, int] = {}  # the request before it on its connection
        self._goes: dict[int, list[Exchange]] = {}  # what is sent in one go, by the number of the first
        self.answers: dict[int, ReceivedAnswer] = {}
        self.sent_anew: list[int] = []
        self.ports: dict[int, int] = {}

    async def carry_out(self, plan: ReplayPlan, died: asyncio.Event, on_subject: Callable[[], None]) -> None:
        """Send everything; returns when the subject has its outcome and the others had their chance.

        Args:
            died: set by the caller when the service's root process ends; nothing is waited for after that.
            on_subject: called just before the subject is sent.
        """
        began = time.monotonic()
        self._ended = {step.exchange.number: asyncio.Event() for step in plan.steps}
        self._sent = {step.exchange.number: asyncio.Event() for step in plan.steps}
        self._follow_each_other(plan.steps)
        tasks = [
            asyncio.create_task(self._send_step(step, plan.subject, began, on_subject)) for step in plan.steps
        ]
        hangups = [asyncio.create_task(self._hang_up(hangup, began)) for hangup in plan.hangups]
        death = asyncio.create_task(died.wait())
        everything = asyncio.gather(*tasks, return_exceptions=True)
        try:
            first: list[asyncio.Future[Any]] = [death, everything]
            await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
            if died.is_set():
                # Answers and resets that were under way still arrive.
                await asyncio.wait([everything], timeout=0.5)
        finally:
            for task in (*tasks, *hangups, death):
                task.cancel()
            await asyncio.gather(*tasks, *hangups, death, return_exceptions=True)
            with contextlib.suppress(asyncio.CancelledError):
                await everything

    def _follow_each_other(self, steps: Sequence[ReplayStep]) -> None:
        """Put requests that shared a connection in their order, and those together that came in one go."""
        last: dict[int, tuple[ReplayStep, list[Exchange]]] = {}
        for step in steps:
            exchange = step.exchange
            before = last.get(exchange.connection)
            if before is not None:
                self._before[exchange.number] = before[0].exchange.number
            if before is not None and _came_together(before[0], step):
                before[1].append(exchange)
                last[exchange.connection] = step, before[1]
            else:
                self._goes[exchange.number] = [exchange]
                last[exchange.connection] = step, self._goes[exchange.number]

    def close(self) -> None:
        """Close all connections."""
        for connection in self._connections.values():
            connection.sock.close()
        for sock in self._forged.values():
            sock.close()

    async def _send_step(
        self, step: ReplayStep, subject: int | None, began: float, on_subject: Callable[[], None]
    ) -> None:
        exchange = step.exchange
        try:
            if not step.continues:
                await self._wait_for_turn(step, began)
                await asyncio.sleep(step.held_ms / 1000)
            if any(one.number == subject for one in self._goes.get(exchange.number, [])):
                on_subject()
            answer = self.answers[exchange.number] = ReceivedAnswer()
            await asyncio.wait_for(self._send(step, answer), self._limit)
        except TimeoutError:
            # What has come of the answer stays: a head without an end is a hang as well.
            answer = self.answers.setdefault(exchange.number, ReceivedAnswer())
            answer.end, answer.seconds = End.NO_ANSWER, self._limit
        finally:
            self._sent[exchange.number].set()
            self._ended[exchange.number].set()

    async def _hang_up(self, hangup: Hangup, began: float) -> None:
        """Close a connection as its client had, once nothing more is to come on it."""
        await self._wait_for_turn(hangup, began)
        known = self._connections.get(hangup.connection)
        if known is not None:
            async with known.answers:
                _end(known.sock)
        elif hangup.port is not None and (forged := self._forged.pop(hangup.port, None)) is not None:
            _end(forged)

    async def _wait_for_turn(self, step: ReplayStep | Hangup, began: float) -> None:
        if self._pace is Pace.RECORDED:
            due = step.after_commit_ns / 1e9 / self._speed
            await asyncio.sleep(max(0.0, due - (time.monotonic() - began)))
        # One after the other: all must have ended. Gathered, each would leave an error that nobody looks at when this is given up.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_WAIT_LIMIT):
                for number in step.waits_for:
                    if number in self._ended:
                        await self._ended[number].wait()

    async def _send(self, step: ReplayStep, answer: ReceivedAnswer) -> None:
        exchange = step.exchange
        if exchange.number in self._before:
            await self._sent[self._before[exchange.number]].wait()
        connection = await self._connection(exchange, continues=step.continues)
        go = self._goes.get(exchange.number, [])
        data = self._rest_of(exchange) if step.continues else b"".join(one.request_bytes() for one in go)
        methods = [one.method.encode("latin-1") for one in go]
        is_kept = connection.is_kept
        await connection.exchange(data, methods, answer, self._sent[exchange.number].set)
        if is_kept and answer.was_reset and not answer.head and len(go) == 1:
            # It was closed in this very moment: nobody has read the request.
            another = await self._anew(exchange, connection)
            if another is not connection:
                self._keep(exchange, another)
                await another.exchange(data, methods, answer)

    def _rest_of(self, exchange: Exchange) -> bytes:
        """What of a continuing request had not reached the service when the commit was taken."""
        return exchange.request_body_after(self._cursor)

    async def _connection(self, exchange: Exchange, *, continues: bool) -> BranchConnection:
        known = self._connections.get(exchange.connection)
        if known is None and (forged := self._forged.pop(exchange.local_port or 0, None)) is not None:
            known = BranchConnection(forged, is_kept=True)
        if known is None:
            known = BranchConnection(await self._connect())
        elif not continues and known.has_ended_idle:
            known = await self._anew(exchange, known)
        self._keep(exchange, known)
        return known

    def _keep(self, exchange: Exchange, connection: BranchConnection) -> None:
        self._connections[exchange.connection] = connection
        self.ports[exchange.number] = connection.sock.getsockname()[1]

    async def _anew(self, exchange: Exchange, ended: BranchConnection) -> BranchConnection:
        """Another connection for what comes on one that the service has closed; that one where there is no other to be had.

        A service keeps an idle connection for some seconds only, two with gunicorn's threads. A replay is always a little later
        than what it plays, on a busy machine by some tenths of a second. Clients go on as is done here (RFC 9112, 9.3.1).
        """
        try:
            connection = BranchConnection(await self._connect())
        except OSError:  # it listens no more: it has not only given up the idle one
            return ended
        ended.sock.close()
        self.sent_anew.append(exchange.number)
        return connection

    async def _connect(self) -> socket.socket:
        family = socket.AF_INET6 if ":" in self._address[0] else socket.AF_INET
        sock = in_network_of(
            self._init, lambda: socket.socket(family, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        )
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            await asyncio.wait_for(
                asyncio.get_running_loop().sock_connect(sock, self._address), _CONNECT_LIMIT
            )
        except BaseException:
            sock.close()
            raise
        return sock


def _came_together(first: ReplayStep, then: ReplayStep) -> bool:
    if first.continues or then.continues or first.exchange.number in then.waits_for:
        return False
    return then.exchange.started_mono_ns - first.exchange.started_mono_ns < _ONE_GO_NS


def _end(sock: socket.socket) -> None:
    """Also where another process has the same end open, as process 1 of a branch has clients': closing alone says nothing then."""
    with contextlib.suppress(OSError), sock:  # the service has broken it
        sock.shutdown(socket.SHUT_RDWR)


def _forged_socket(descriptor: int) -> socket.socket:
    sock = socket.socket(fileno=descriptor)
    sock.setblocking(False)
    return sock


def service_address(manifest: Manifest) -> tuple[str, int]:
    """Where to send: the port that the recorded clients had reached, or the lowest one the service listens on."""
    inward = [connection.local for connection in manifest.connections if connection.inward]
    host, port = inward[0] if inward else (manifest.listening[0] if manifest.listening else ("127.0.0.1", 0))
    if host in ("0.0.0.0", "::"):
        return ("127.0.0.1" if host == "0.0.0.0" else "::1"), port
    return host, port
