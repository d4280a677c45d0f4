"""Sending the request to a fresh process, over a socket made in its own network namespace, and seeing whether that ends by it."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from relive.errors import TlsRefused
from relive.kernel import procfs
from relive.kernel.namespaces import in_network
from relive.kernel.procfs import Mapping
from relive.model.outcome import End, Fault, Outcome
from relive.recording.events import EventKind
from relive.replay.connection import connection_over, speaks_http2
from relive.replay.deaths import Deaths, Watched
from relive.replay.fresh.request import SentRequest
from relive.replay.fresh.tls_line import TlsLine
from relive.replay.received import ReceivedAnswer
from relive.replay.ring_collector import BranchDrain
from relive.sandbox.fresh_process import FreshProcess

__all__ = ["Sent", "is_loopback", "send"]

_CONNECT_LIMIT = 5.0  # [s]
_END_LIMIT = 5.0  # [s] after the answer, or the end of its connection, for that of the service
_TOLD_LIMIT, _LOOK = 1.0, 0.01  # [s] after its end, for word of the signal
_LOCAL = frozenset({"0.0.0.0", "127.0.0.1", "::", "::1", "localhost", ""})


def is_loopback(address: str) -> bool:
    """Who listens there can be reached on loopback."""
    return address in _LOCAL


@dataclass(slots=True)
class Sent:
    """What came of a request.

    Attributes:
        answer: as far as it came; how: in words why no more did, empty when it is whole.
        is_taken: the service took the connection.
        fault: the first fatal signal; code: where the code of its process lay.
        worker_exit: how a process that is not the service's first one ended with a failure; None: none did.
        is_encrypted: the service ends TLS itself, so it was sent within that.
        log_from: bytes that the service's standard error had before it was sent.
    """

    answer: ReceivedAnswer = field(default_factory=ReceivedAnswer)
    how: str = ""
    is_taken: bool = True
    fault: Fault | None = None
    code: Sequence[Mapping] = ()
    worker_exit: int | None = None
    is_encrypted: bool = False
    log_from: int = 0


def send(
    sandbox: FreshProcess,
    drain: BranchDrain,
    request: SentRequest,
    to: tuple[str | None, int],
    limit: float,
    recorded: Outcome | None,
) -> Sent:
    """Send it and wait for the answer; what is in the rings is taken meanwhile, so that none runs over.

    Args:
        to: the address on which it listens, None: that of loopback; and the port.
        limit: seconds for the answer.
        recorded: how it had ended; of a death the processes are watched, and their end is waited for.

    Raises:
        TlsRefused: the service ends TLS itself, and wants more of a client than can be had.
    """
    sent = Sent()
    asyncio.run(_send(sandbox, drain, request, to, limit, recorded, sent))
    return sent


async def _send(
    sandbox: FreshProcess,
    drain: BranchDrain,
    request: SentRequest,
    to: tuple[str | None, int],
    limit: float,
    recorded: Outcome | None,
    sent: Sent,
) -> None:
    codes: list[list[Mapping]] = []
    watched = Watched(
        sandbox.root,
        sandbox.init,
        sandbox.groups.oom_kills,
        lambda pid: codes.append(list(procfs.read_maps(pid))),
    )
    ends = recorded is not None and recorded.end is End.DIED
    deaths = await Deaths.watch(watched, recorded) if recorded is not None and ends else None
    try:
        try:
            await _exchange(sandbox, drain, request, to, limit, sent)
            if sent.answer.end is not End.ANSWERED:
                sent.how = "the connection broke before the answer was whole"
        except TimeoutError:
            sent.how = f"no answer came within {limit:g} s"
        except OSError as error:
            sent.is_taken = False
            sent.how = f"the service took no connection: {error.strerror or error}"
        if ends:
            await _end(sandbox, drain, deaths)
    finally:
        if deaths is not None:
            await deaths.close()
    if deaths is not None:
        sent.worker_exit = deaths.exit_status
        sent.fault = next(iter(deaths.faults), None)
        sent.code = next(iter(codes), [])


async def _end(sandbox: FreshProcess, drain: BranchDrain, deaths: Deaths | None) -> None:
    """Wait for the end of a process that is watched, or of the service."""
    until = time.monotonic() + _END_LIMIT
    while time.monotonic() < until and procfs.exists(sandbox.root):
        if deaths is not None and deaths.seen.is_set():
            return
        drain.drain()
        await asyncio.sleep(_LOOK)
    if deaths is not None and not procfs.exists(sandbox.root):
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(deaths.seen.wait(), _TOLD_LIMIT)


async def _exchange(
    sandbox: FreshProcess,
    drain: BranchDrain,
    request: SentRequest,
    to: tuple[str | None, int],
    limit: float,
    sent: Sent,
) -> None:
    async with asyncio.timeout(limit):
        looking = asyncio.create_task(drain.run())
        try:
            handled = _handled(drain)
            sent.log_from = _log_size(sandbox)
            await _ask(await _connect(sandbox, *to), request, sent.answer)
            if request.may_be_encrypted and _handled(drain) == handled:
                await _ask_within_tls(sandbox, request, to, sent)
        finally:
            looking.cancel()


def _handled(drain: BranchDrain) -> int:
    """How many requests have reached the service's code by now."""
    drain.drain()
    return sum(event.kind is EventKind.HANDLING_STARTED for event in drain.events)


def _log_size(sandbox: FreshProcess) -> int:
    return sandbox.place.log("stderr").stat().st_size


async def _ask(sock: socket.socket, request: SentRequest, answer: ReceivedAnswer) -> None:
    connection = connection_over(sock, is_http2=speaks_http2(request.data))
    try:
        await connection.exchange(request.data, [request.method.encode("latin-1")], answer)
    finally:
        connection.close()


async def _ask_within_tls(
    sandbox: FreshProcess, request: SentRequest, to: tuple[str | None, int], sent: Sent
) -> None:
    """The service has turned away what came without TLS: where it speaks that, what follows counts."""
    line, log_from = None, _log_size(sandbox)
    with contextlib.suppress(OSError):  # it takes no connection any more: what was seen counts
        line = await TlsLine.over(await _connect(sandbox, *to), request.host)
    if line is None:
        return
    try:
        sent.answer, sent.is_encrypted, sent.log_from = ReceivedAnswer(), True, log_from
        await _ask(line.sock, request, sent.answer)
    finally:
        await line.close()
    if line.refusal is not None and sent.answer.status is None:
        raise TlsRefused(
            "the request cannot be sent again: the service ends TLS itself, and wants none with this client",
            cause=f"it says {line.refusal}; Relive has no certificate of a client",
            remedy="name a command after -- that starts the service without TLS, or without asking for a client's certificate",
        )


async def _connect(sandbox: FreshProcess, known: str | None, port: int) -> socket.socket:
    """A connection to whoever listens on that port, on its address of either family."""
    tried = [known] if known is not None and not is_loopback(known) else []
    failure: OSError = ConnectionRefusedError("nobody listens there")
    for address in (*tried, "127.0.0.1", "::1"):
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        kind = socket.SOCK_STREAM | socket.SOCK_CLOEXEC
        sock = in_network(sandbox.network, functools.partial(socket.socket, family, kind))
        sock.setblocking(False)
        try:
            async with asyncio.timeout(_CONNECT_LIMIT):
                await asyncio.get_running_loop().sock_connect(sock, (address, port))
        except OSError as error:
            sock.close()
            failure = error
        else:
            return sock
    raise failure
