"""Sending the request to a fresh process, over a socket made in its own network namespace."""

from __future__ import annotations

import asyncio
import functools
import socket

from relive.kernel.namespaces import in_network
from relive.model.outcome import End
from relive.replay.fresh.request import SentRequest
from relive.replay.ring_collector import BranchDrain
from relive.replay.sender import BranchConnection, ReceivedAnswer
from relive.sandbox.fresh_process import Afresh

__all__ = ["is_loopback", "send"]

_CONNECT_LIMIT = 5.0  # [s]
_LOCAL = frozenset({"0.0.0.0", "127.0.0.1", "::", "::1", "localhost", ""})


def is_loopback(address: str) -> bool:
    """Who listens there can be reached on loopback."""
    return address in _LOCAL


def send(
    sandbox: Afresh, drain: BranchDrain, request: SentRequest, to: tuple[str | None, int], limit: float
) -> tuple[ReceivedAnswer, str]:
    """Send it and wait for the answer; what is in the rings is taken meanwhile, so that none runs over.

    Args:
        to: the address on which it listens, None: that of loopback; and the port.
        limit: seconds for all of it.

    Returns:
        The answer as far as it came, and in words why no more did; empty when it is whole.
    """
    answer = ReceivedAnswer()
    try:
        asyncio.run(_exchange(sandbox, drain, request, to, limit, answer))
    except TimeoutError:
        return answer, f"no answer came within {limit:g} s"
    except OSError as error:
        return answer, f"the service took no connection: {error.strerror or error}"
    return answer, "" if answer.end is End.ANSWERED else "the connection broke before the answer was whole"


async def _exchange(
    sandbox: Afresh,
    drain: BranchDrain,
    request: SentRequest,
    to: tuple[str | None, int],
    limit: float,
    answer: ReceivedAnswer,
) -> None:
    async with asyncio.timeout(limit):
        looking = asyncio.create_task(drain.run())
        connection = BranchConnection(await _connect(sandbox, *to))
        try:
            await connection.exchange(request.data, [request.method.encode("latin-1")], answer)
        finally:
            connection.sock.close()
            looking.cancel()


async def _connect(sandbox: Afresh, known: str | None, port: int) -> socket.socket:
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
