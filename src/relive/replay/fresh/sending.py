"""Sending the request to a fresh process, over a socket made in its own network namespace, and seeing whether that ends by it."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from relive.kernel import procfs
from relive.kernel.namespaces import in_network
from relive.kernel.procfs import Mapping
from relive.model.outcome import End, Fault, Outcome
from relive.replay.connection import connection_over, speaks_http2
from relive.replay.deaths import Deaths, Watched
from relive.replay.fresh.request import SentRequest
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
    """

    answer: ReceivedAnswer = field(default_factory=ReceivedAnswer)
    how: str = ""
    is_taken: bool = True
    fault: Fault | None = None
    code: Sequence[Mapping] = ()
    worker_exit: int | None = None


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
            await _exchange(sandbox, drain, request, to, limit, sent.answer)
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
    answer: ReceivedAnswer,
) -> None:
    async with asyncio.timeout(limit):
        looking = asyncio.create_task(drain.run())
        connection = connection_over(await _connect(sandbox, *to), is_http2=speaks_http2(request.data))
        try:
            await connection.exchange(request.data, [request.method.encode("latin-1")], answer)
        finally:
            connection.close()
            looking.cancel()


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
