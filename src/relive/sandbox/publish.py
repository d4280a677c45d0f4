"""Publishing a branch's port on the host: a process that listens outside and connects inside.

Bytes are carried from socket to socket; no network device is added, so the branch stays sealed: it cannot open connections
to the outside, only answer those that were published. Run as ``python -m relive.sandbox.publish``.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import socket
import subprocess
import sys

from relive.errors import RestoreFailed, UsageError
from relive.kernel.namespaces import Namespace, enter
from relive.model.branch import Publication
from relive.sandbox.branch import Branch

__all__ = ["publish"]

_CHUNK = 1 << 16  # [bytes]


def publish(branch: Branch, host: str, host_port: int, port: int) -> None:
    """Make a branch's port reachable on the host until the branch ends, and note it in its state.

    Raises:
        UsageError: the host's port is taken or may not be used.
        RestoreFailed: the forwarder did not start.
    """
    try:
        listener = socket.create_server(
            (host, host_port), family=socket.AF_INET6 if ":" in host else socket.AF_INET
        )
    except OSError as error:
        raise UsageError(
            f"cannot listen on {host}:{host_port}", cause=error.strerror, remedy="publish on another port"
        ) from error
    with listener:
        process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "relive.sandbox.publish",
                str(branch.facts.init),
                str(port),
                str(listener.fileno()),
            ],
            pass_fds=[listener.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    assert process.stdout is not None
    with process.stdout:
        if process.stdout.readline() != b"ready\n":
            raise RestoreFailed("the port was not published", cause="the forwarding process ended")
    publication = Publication(host=host, host_port=host_port, port=port, forwarder=process.pid)
    branch.facts = branch.facts.model_copy(update={"publications": [*branch.facts.publications, publication]})
    branch.save()


async def _carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(_CHUNK):
            writer.write(data)
            await writer.drain()
        writer.write_eof()


async def _connect_inside(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    try:
        return await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return await asyncio.open_connection("::1", port)


async def _forward(init: int, port: int, listener: socket.socket) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            inner_reader, inner_writer = await _connect_inside(port)
        except OSError:
            writer.close()
            return
        await asyncio.gather(_carry(reader, inner_writer), _carry(inner_reader, writer))
        for end in (writer, inner_writer):
            end.close()

    server = await asyncio.start_server(serve, sock=listener)
    ended = asyncio.Event()
    handle = os.pidfd_open(init)
    asyncio.get_running_loop().add_reader(handle, ended.set)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    await ended.wait()
    server.close()


def _main() -> None:
    parser = argparse.ArgumentParser(prog="relive.sandbox.publish")
    parser.add_argument("init", type=int)
    parser.add_argument("port", type=int)
    parser.add_argument("listener", type=int)
    arguments = parser.parse_args()
    # The listening socket belongs to the host's network; from here on every new socket belongs to the branch's.
    enter(arguments.init, Namespace.NETWORK)
    asyncio.run(_forward(arguments.init, arguments.port, socket.socket(fileno=arguments.listener)))


if __name__ == "__main__":
    _main()
