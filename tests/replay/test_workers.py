"""Which worker takes a connection: real processes that share a socket; branches are in tests/real/test_gunicorn.py."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest

from relive.kernel import procfs
from relive.recording.events import Event, EventKind
from relive.replay.workers import WorkerChoice, workers_of
from support.waiting import eventually

from .test_plan import exchange

# Three workers, which each say who they are, and how to be kept busy: by a connection that says "hold".
_SERVER = """
import os, select, socket

listener = socket.create_server(("127.0.0.1", 0))
listener.setblocking(False)
pids = []
for _ in range(3):
    pid = os.fork()
    if pid == 0:
        while True:
            select.select([listener], [], [])
            try:
                connection, _ = listener.accept()
            except BlockingIOError:
                continue
            connection.sendall(b"%d\\n" % os.getpid())
            while connection.recv(16):
                pass
            connection.close()
    pids.append(pid)
print(listener.getsockname()[1], *pids, flush=True)
listener.close()
os.wait()
"""


@pytest.fixture
def server() -> Iterator[tuple[WorkerChoice, list[int]]]:
    with subprocess.Popen([sys.executable, "-c", _SERVER], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            port, *pids = map(int, process.stdout.readline().split())
            yield WorkerChoice(process.pid, os.getpid(), ("127.0.0.1", port)), pids
        finally:
            for pid in reversed(procfs.tree_of(process.pid)):
                os.kill(pid, signal.SIGKILL)


async def _connect(address: tuple[str, int]) -> socket.socket:
    sock = socket.create_connection(address, timeout=5.0)
    sock.setblocking(False)
    return sock


async def _who(choice: WorkerChoice, worker: int | None) -> tuple[int, socket.socket]:
    """The worker that took a connection, and the connection, with which it is busy."""
    connection = await choice.connected(worker, lambda: _connect(choice.address))
    said = await asyncio.wait_for(asyncio.get_running_loop().sock_recv(connection, 64), 10.0)
    return int(said), connection


def test_each_connection_is_taken_by_the_worker_that_had_it(server: tuple[WorkerChoice, list[int]]) -> None:
    choice, pids = server

    async def ask() -> None:
        for worker in [*pids, *reversed(pids), pids[1], pids[1], pids[1]]:
            took, connection = await _who(choice, worker)
            connection.close()
            assert took == worker

    asyncio.run(ask())
    assert not any(map(procfs.is_stopped, pids))


def test_of_connections_made_at_once_each_gets_its_worker(server: tuple[WorkerChoice, list[int]]) -> None:
    choice, pids = server

    async def ask() -> list[tuple[int, socket.socket]]:
        return await asyncio.gather(*(_who(choice, worker) for worker in pids))

    came = asyncio.run(ask())
    for _, connection in came:
        connection.close()
    assert [took for took, _ in came] == pids


def test_what_a_busy_worker_cannot_take_another_takes(server: tuple[WorkerChoice, list[int]]) -> None:
    choice, pids = server

    async def ask() -> None:
        _, busy = await _who(choice, pids[0])
        began = time.monotonic()
        assert not choice.elsewhere
        took, connection = await _who(choice, pids[0])
        assert took in pids[1:]
        assert choice.elsewhere == {pids[0]}
        assert time.monotonic() - began < 5.0
        busy.close()
        connection.close()

    asyncio.run(ask())
    assert not any(map(procfs.is_stopped, pids))


@pytest.mark.parametrize("worker", [None, 1 << 30])
def test_a_worker_that_is_not_known_or_not_there_changes_nothing(
    server: tuple[WorkerChoice, list[int]], worker: int | None
) -> None:
    choice, pids = server
    took, connection = asyncio.run(_who(choice, worker))
    connection.close()
    assert took in pids


def test_who_stood_already_goes_on_standing(server: tuple[WorkerChoice, list[int]]) -> None:
    choice, pids = server
    os.kill(pids[0], signal.SIGSTOP)
    eventually(lambda: procfs.is_stopped(pids[0]), "it stands")
    took, connection = asyncio.run(_who(choice, pids[1]))
    connection.close()
    assert took == pids[1]
    assert procfs.is_stopped(pids[0])


def test_nobody_goes_on_standing_where_the_replay_is_given_up(
    server: tuple[WorkerChoice, list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    choice, pids = server

    async def give_up() -> None:
        asked = asyncio.create_task(choice.connected(pids[0], lambda: _connect(choice.address)))
        await asyncio.sleep(0)  # it has stopped the others, and waits until they stand
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked

    with monkeypatch.context() as never:
        never.setattr(procfs, "is_stopped", lambda _: False)
        asyncio.run(give_up())
    eventually(lambda: not any(map(procfs.is_stopped, pids)), "all go on")
    for pid in pids:
        took, connection = asyncio.run(_who(choice, pid))
        connection.close()
        assert took == pid


def _handled(pid: int, target: str, mono_ns: int) -> Event:
    """A handler that began in a process; like the exchanges, a millisecond an event."""
    fields: dict[str, Any] = {"pid": pid, "method": "GET", "target": target}
    return Event(mono_ns, mono_ns, 0, EventKind.HANDLING_STARTED, fields=fields)


def test_the_recorder_inside_tells_which_process_had_a_request() -> None:
    first, second, unknown = exchange(1, 100, 110), exchange(2, 120, 130), exchange(3, 140, 150)
    events = [_handled(7, first.target, first.started_mono_ns + 1)]
    events.append(_handled(9, second.target, second.started_mono_ns + 1))
    assert workers_of(events, [first, second, unknown]) == {1: 7, 2: 9}
