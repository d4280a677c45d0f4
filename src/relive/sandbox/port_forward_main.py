"""The process that carries a published port: ``python -m relive.sandbox.port_forward_main NETWORK PORT LISTENER``.

NETWORK: file of the network namespace in which it connects to PORT; LISTENER: number of the inherited socket that listens on the
host. It reads a pid from its standard input, says ``ready`` and ends with that process; if none comes, it ends at once. It imports
little, since somebody waits for it.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import socket
import sys

from relive.kernel.namespaces import Namespace, enter_file

_CHUNK = 1 << 16  # [bytes]


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
    parser = argparse.ArgumentParser(prog="relive.sandbox.port_forward_main")
    parser.add_argument("network")
    parser.add_argument("port", type=int)
    parser.add_argument("listener", type=int)
    arguments = parser.parse_args()
    # The listening socket belongs to the host's network; from here on every new socket belongs to the branch's.
    enter_file(arguments.network, Namespace.NETWORK)
    asyncio.run(_forward(arguments.port, socket.socket(fileno=arguments.listener)))


if __name__ == "__main__":
    _main()
