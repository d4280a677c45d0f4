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
from relive.kernel.namespaces import Namespace, enter_file
from relive.model.branch import Publication
from relive.sandbox.branch import Branch

__all__ = ["Forwarder", "publish"]

_CHUNK = 1 << 16  # [bytes]


class Forwarder:
    """A process that carries bytes between a port of the host and one inside; it ends with the process it is tied to.

    It begins to listen at once, so that who connects before anything runs inside only waits.
    """

    def __init__(self, network: str, host: str, host_port: int, port: int) -> None:
        """Start it.

        Args:
            network: file that names the network namespace it connects in.

        Raises:
            UsageError: the host's port is taken or may not be used.
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
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "relive.sandbox.publish",
                    network,
                    str(port),
                    str(listener.fileno()),
                ],
                pass_fds=[listener.fileno()],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        self._host, self._host_port, self._port = host, host_port, port

    def tie_to(self, pid: int) -> Publication:
        """Let it carry until this process ends; returns when it does.

        Raises:
            RestoreFailed: it did not start.
        """
        assert self._process.stdin is not None and self._process.stdout is not None
        with self._process.stdin as told, self._process.stdout as said, contextlib.suppress(BrokenPipeError):
            told.write(b"%d\n" % pid)
            told.flush()
            if said.readline() == b"ready\n":
                return Publication(
                    host=self._host, host_port=self._host_port, port=self._port, forwarder=self._process.pid
                )
        raise RestoreFailed("the port was not published", cause="the forwarding process ended")

    def end(self) -> None:
        """Stop it, tied or not."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.terminate()
        self._process.wait()
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.stdout.close()


def publish(branch: Branch, host: str, host_port: int, port: int) -> None:
    """Make a branch's port reachable on the host until the branch ends, and note it in its state.

    Raises:
        UsageError: the host's port is taken or may not be used.
        RestoreFailed: the forwarder did not start.
    """
    forwarder = Forwarder(f"/proc/{branch.facts.init}/ns/net", host, host_port, port)
    publication = forwarder.tie_to(branch.facts.init)
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


async def _forward(port: int, listener: socket.socket) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            inner_reader, inner_writer = await _connect_inside(port)
        except OSError:
            writer.close()
            return
        await asyncio.gather(_carry(reader, inner_writer), _carry(inner_reader, writer))
        for end in (writer, inner_writer):
            end.close()

    # Imports are done by now; the pid comes when the processes run.
    line = await asyncio.to_thread(sys.stdin.readline)
    if not line.strip():
        return  # they never ran
    handle = os.pidfd_open(int(line))
    server = await asyncio.start_server(serve, sock=listener)
    ended = asyncio.Event()
    asyncio.get_running_loop().add_reader(handle, ended.set)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    await ended.wait()
    server.close()


def _main() -> None:
    parser = argparse.ArgumentParser(prog="relive.sandbox.publish")
    parser.add_argument("network")
    parser.add_argument("port", type=int)
    parser.add_argument("listener", type=int)
    arguments = parser.parse_args()
    # The listening socket belongs to the host's network; from here on every new socket belongs to the branch's.
    enter_file(arguments.network, Namespace.NETWORK)
    asyncio.run(_forward(arguments.port, socket.socket(fileno=arguments.listener)))


if __name__ == "__main__":
    _main()
