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
from collections.abc import Callable, Sequence
from typing import Any

from relive.kernel.namespaces import in_network_of
from relive.model.commit import Manifest
from relive.model.outcome import End
from relive.recording.exchanges import Exchange
from relive.replay.connection import BranchConnection, connection_over
from relive.replay.conversations import ConversationSender, Conversed
from relive.replay.hanging_up import hang_up
from relive.replay.plan import Hangup, Pace, ReplayPlan, ReplayStep
from relive.replay.received import ReceivedAnswer
from relive.replay.workers import WorkerChoice

__all__ = ["Sender", "service_address"]

_CONNECT_LIMIT = 5.0  # [s]
_ONE_GO_NS = 1_000_000  # [ns] requests on one connection that began within it had come together
_UNANSWERED_MOST = 2  # requests; further ones are waited for less long: ``_BRIEFLY``, and three times as long as they had taken
_BRIEFLY = 1.0  # [s]
_WAIT_LIMIT = 30.0  # [s] most that a request waits for earlier ones to end, should the branch answer slower


class Sender:
    """Carries out one plan in one branch.

    Args:
        init: host pid of the branch's process 1.
        address: where the service listens inside.
        peers: descriptors of the forged client ends by their port; they belong to the sender afterwards.
        limit: seconds to wait for the answer to the subject.
        speed: recorded times are divided by it.
        root: host pid of the service's first process, whose workers get the connections that they had; None: whoever accepts.
        linger: seconds that the last message which is not HTTP/1 is given to be answered, where it was not; None: none.

    Attributes:
        answers: what came back, by the requests' numbers.
        sent_anew: requests whose connection the service had closed before they came, which have got another one.
        ports: from which each was sent.
        conversed: what came of what is not HTTP/1, once ``carry_out`` has ended.
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
        root: int | None = None,
        linger: float | None = None,
    ) -> None:
        self._init = init
        self._choice = WorkerChoice(root, init, address) if root is not None else None
        self._address = address
        self._forged = {port: _forged_socket(descriptor) for port, descriptor in peers.items()}
        self._pace = pace
        self._limit = limit
        self._linger = linger
        self._cursor = cursor
        self._speed = speed
        self._connections: dict[int, BranchConnection] = {}
        self._used: dict[int, BranchConnection] = {}  # by the numbers of requests
        self._ended: dict[int, asyncio.Event] = {}
        self._sent: dict[int, asyncio.Event] = {}
        self._before: dict[int, int] = {}  # the request before it on its connection
        self._goes: dict[int, list[Exchange]] = {}  # what is sent in one go, by the number of the first
        self._unanswered = (
            0  # requests that had no answer within a time in which they had one when they were recorded
        )
        self.answers: dict[int, ReceivedAnswer] = {}
        self.sent_anew: list[int] = []
        self.ports: dict[int, int] = {}
        self.conversed = Conversed()

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
        if plan.conversations is not None:
            tasks.append(asyncio.create_task(self._converse(plan, began, died)))
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

    async def _converse(self, plan: ReplayPlan, began: float, died: asyncio.Event) -> None:
        """Send again what was not HTTP/1."""

        async def wait_until(mono_ns: int) -> None:
            await self._wait_until(mono_ns - plan.start_ns, began)

        assert plan.conversations is not None
        sender = ConversationSender(
            plan.conversations, self._connect, self._forged, self._upgraded, wait_until
        )
        try:
            await sender.carry_out()
            if self._linger is not None:
                await sender.linger(died, self._linger)
        finally:
            self.conversed = sender.result()
            sender.close()

    async def _upgraded(self, number: int) -> tuple[socket.socket, bytes]:
        """The connection of a request that asked for an upgrade, once that is granted, and what was said on it since."""
        if number not in self._ended:
            raise ConnectionRefusedError
        await self._ended[number].wait()
        answer, connection = self.answers[number], self._used.get(number)
        if connection is None or answer.end is not End.ANSWERED:
            raise ConnectionRefusedError
        return connection.sock, connection.take_stream()

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
            connection.close()
        for sock in self._forged.values():
            sock.close()

    async def _send_step(
        self, step: ReplayStep, subject: int | None, began: float, on_subject: Callable[[], None]
    ) -> None:
        exchange = step.exchange
        patience = self._limit
        try:
            if not step.continues:
                await self._wait_for_turn(step, began)
                await asyncio.sleep(step.held_ms / 1000)
            if any(one.number == subject for one in self._goes.get(exchange.number, [])):
                on_subject()
            answer = self.answers[exchange.number] = ReceivedAnswer()
            patience = self._limit if exchange.number == subject else self._patience(exchange)
            await asyncio.wait_for(self._send(step, answer), patience)
        except TimeoutError:
            # What has come of the answer stays: a head without an end is a hang as well.
            answer = self.answers.setdefault(exchange.number, ReceivedAnswer())
            answer.end, answer.seconds = End.NO_ANSWER, patience
            took = self._took(exchange)
            self._unanswered += took is not None and took < patience
        finally:
            self._sent[exchange.number].set()
            self._ended[exchange.number].set()

    def _patience(self, exchange: Exchange) -> float:
        """Seconds for a request beside the subject. A service that hangs in all of hundreds is not waited for each time as long."""
        took = self._took(exchange)
        if self._unanswered < _UNANSWERED_MOST or took is None:
            return self._limit
        return min(self._limit, _BRIEFLY + 3 * took)

    def _took(self, exchange: Exchange) -> float | None:
        """Seconds until its answer was whole when it was recorded, at this replay's speed; None: it had none."""
        if exchange.status is None or exchange.seconds is None:
            return None
        return exchange.seconds / self._speed

    async def _hang_up(self, hangup: Hangup, began: float) -> None:
        """Close a connection as its client had, once nothing more is to come on it."""
        await self._wait_for_turn(hangup, began)
        known = self._connections.get(hangup.connection)
        if known is not None:
            await known.hang_up()
        elif hangup.port is not None and (forged := self._forged.pop(hangup.port, None)) is not None:
            hang_up(forged)

    async def _wait_for_turn(self, step: ReplayStep | Hangup, began: float) -> None:
        await self._wait_until(step.after_commit_ns, began)
        # One after the other: all must have ended. Gathered, each would leave an error that nobody looks at when this is given up.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_WAIT_LIMIT):
                for number in step.waits_for:
                    if number in self._ended:
                        await self._ended[number].wait()

    async def _wait_until(self, after_commit_ns: int, began: float) -> None:
        """At the recorded pace: until so much time has passed."""
        if self._pace is Pace.RECORDED:
            due = after_commit_ns / 1e9 / self._speed
            await asyncio.sleep(max(0.0, due - (time.monotonic() - began)))

    async def _send(self, step: ReplayStep, answer: ReceivedAnswer) -> None:
        exchange = step.exchange
        if exchange.number in self._before:
            await self._sent[self._before[exchange.number]].wait()
        connection = await self._connection(step)
        go = self._goes.get(exchange.number, [])
        data = self._rest_of(exchange) if step.continues else b"".join(one.request_bytes() for one in go)
        methods = [one.method.encode("latin-1") for one in go]
        is_kept = connection.is_kept
        await connection.exchange(data, methods, answer, self._sent[exchange.number].set)
        if is_kept and answer.was_reset and not answer.head and len(go) == 1:
            # It was closed in this very moment: nobody has read the request.
            another = await self._anew(step, connection)
            if another is not connection:
                self._keep(exchange, another)
                await another.exchange(data, methods, answer)

    def _rest_of(self, exchange: Exchange) -> bytes:
        """What of a continuing request had not reached the service when the commit was taken."""
        return exchange.request_body_after(self._cursor)

    async def _connection(self, step: ReplayStep) -> BranchConnection:
        exchange = step.exchange
        known = self._connections.get(exchange.connection)
        if known is None and not exchange.is_http2 and (forged := self._forged_end(exchange)) is not None:
            known = connection_over(forged, is_http2=False, is_kept=True)
        if known is None:
            known = connection_over(await self._connect_as(step), is_http2=exchange.is_http2)
        elif not step.continues and known.has_ended_idle:
            known = await self._anew(step, known)
        self._keep(exchange, known)
        return known

    def _forged_end(self, exchange: Exchange) -> socket.socket | None:
        return self._forged.pop(exchange.local_port or 0, None)

    def _keep(self, exchange: Exchange, connection: BranchConnection) -> None:
        self._connections[exchange.connection] = self._used[exchange.number] = connection
        self.ports[exchange.number] = connection.sock.getsockname()[1]

    async def _anew(self, step: ReplayStep, ended: BranchConnection) -> BranchConnection:
        """Another connection for what comes on one that the service has closed; that one where there is no other to be had.

        A service keeps an idle connection for some seconds only, two with gunicorn's threads. A replay is always a little later
        than what it plays, on a busy machine by some tenths of a second. Clients go on as is done here (RFC 9112, 9.3.1).
        """
        try:
            connection = connection_over(await self._connect_as(step), is_http2=step.exchange.is_http2)
        except OSError:  # it listens no more: it has not only given up the idle one
            return ended
        ended.close()
        self.sent_anew.append(step.exchange.number)
        return connection

    @property
    def elsewhere(self) -> list[int]:
        """As ``WorkerChoice.elsewhere``, in order."""
        return sorted(self._choice.elsewhere) if self._choice is not None else []

    async def _connect_as(self, step: ReplayStep) -> socket.socket:
        """A connection to the worker that had the request."""
        if self._choice is None:
            return await self._connect()
        return await self._choice.connected(step.worker, self._connect)

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
    if then.exchange.is_http2:  # streams are side by side anyway
        return False
    if first.continues or then.continues or first.exchange.number in then.waits_for:
        return False
    return then.exchange.started_mono_ns - first.exchange.started_mono_ns < _ONE_GO_NS


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
