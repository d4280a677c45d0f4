"""The stubs of a free-running branch: a process of their own, which lives and dies with it.

Run as ``python -m relive.replay.stubs.process DESCRIPTOR``, where it reads a pickled ``_Order`` (from this very program) to its
end; the descriptors that are named in it are inherited. It writes "ready" to its standard output when it answers, and to
``io/stubs.log`` in the branch's directory a line for everything that was not as recorded.
"""

from __future__ import annotations

import asyncio
import io
import os
import pickle
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from relive.errors import RestoreFailed
from relive.kernel.plainfile import open_plain
from relive.kernel.procfs import read_stat
from relive.protocols.registry import ProtocolRegistry
from relive.replay.sequence import miss_words
from relive.replay.stubs.plan import StubPlan
from relive.replay.stubs.report import misses_of_stubs
from relive.replay.stubs.server import StubServer
from relive.replay.stubs.speed import Speed
from relive.sandbox.branch import Branch
from relive.sandbox.endpoints import OpenedEndpoints

__all__ = ["answer_branch", "stubs_log"]

_LOOK = 0.25  # [s] between two looks for what has to be told
_MOST_LOG = 8 << 20  # [bytes]
_STARTS_WITHIN = 60.0  # [s]


@dataclass(frozen=True, slots=True)
class _Order:
    """What the process has to do."""

    plan: StubPlan
    ends: OpenedEndpoints
    init: int
    speed: float
    own_ports: frozenset[int]
    on_miss: Mapping[str, str]
    log: str


def stubs_log(branch: Branch) -> Path:
    """Where the stubs of a branch write what was not as recorded."""
    return branch.log("stubs")


def answer_branch(
    branch: Branch, plan: StubPlan, speed: Speed, own_ports: Sequence[int], on_miss: Mapping[str, str]
) -> None:
    """Let a process answer a branch that was just restored, until it ends, and note it in the branch's state.

    Args:
        own_ports: where the service listens itself.
        on_miss: what becomes of a question without a recorded answer, see ``protocols.registry``.

    Raises:
        RestoreFailed: the process did not start.
    """
    ends = branch.ends
    order = _Order(
        plan=plan,
        ends=ends,
        init=branch.facts.init,
        speed=float(speed),
        own_ports=frozenset(own_ports),
        on_miss=dict(on_miss),
        log=str(stubs_log(branch)),
    )
    kept = [
        *(fd for held in (ends.continued, ends.destinations, ends.names) for fd in held.values()),
        *(*ends.fillers, *ends.handshakes),
    ]
    ours, theirs = socket.socketpair()
    with ours, theirs:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "relive.replay.stubs.process", str(theirs.fileno())],
            pass_fds=[theirs.fileno(), *kept],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        theirs.close()
        ours.settimeout(_STARTS_WITHIN)
        assert process.stdout is not None
        with process.stdout:
            try:
                ours.sendall(pickle.dumps(order))
                ours.shutdown(socket.SHUT_WR)
                ready, _, _ = select.select([process.stdout], [], [], _STARTS_WITHIN)
                said = process.stdout.readline() if ready else b""
            except OSError:
                said = b""
    if said != b"ready\n":
        process.kill()
        process.wait()
        raise RestoreFailed(
            "the stubs did not start",
            cause="their process ended",
            remedy="`relive restore --no-stubs` restores without them",
        )
    ends.close()
    stat = read_stat(process.pid)
    branch.facts = branch.facts.model_copy(
        update={"stubs": process.pid, "stubs_started": stat.start_ticks if stat is not None else 0}
    )
    branch.save()


class _Log:
    """Tells everything once."""

    def __init__(self, path: Path, server: StubServer, notes: Sequence[str]) -> None:
        self._file = io.TextIOWrapper(open_plain(path, appending=True), "utf-8", line_buffering=True)
        self._server = server
        self._waiting = list(notes)
        self._misses = self._notes = 0
        self._strangers: set[str] = set()

    def look(self) -> None:
        """Write down what is new."""
        server = self._server
        misses = misses_of_stubs(server)
        lines = [*self._waiting, *map(miss_words, misses[self._misses :]), *server.notes[self._notes :]]
        self._waiting, self._misses, self._notes = [], len(misses), len(server.notes)
        for host, port in server.strangers:
            if f"{host}:{port}" not in self._strangers:
                self._strangers.add(f"{host}:{port}")
                lines.append(f"the service wanted to connect to {host}:{port}, which was never recorded")
        if lines and self._file.tell() < _MOST_LOG:
            self._file.write("\n".join(lines) + "\n")


async def _serve(order: _Order) -> None:
    server = StubServer(
        order.plan,
        order.ends,
        ProtocolRegistry(order.on_miss),
        init=order.init,
        authority=order.plan.authority,
        speed=Speed(order.speed),
        own_ports=order.own_ports,
    )
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_reader(os.pidfd_open(order.init), ended.set)
    loop.add_signal_handler(signal.SIGTERM, ended.set)
    server.start()
    log = _Log(Path(order.log), server, order.plan.notes)
    log.look()
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    while not ended.is_set():
        try:
            await asyncio.wait_for(ended.wait(), _LOOK)
        except TimeoutError:
            log.look()
    log.look()
    await server.close()


def _main() -> None:
    with socket.socket(fileno=int(sys.argv[1])) as channel, channel.makefile("rb") as file:
        order: _Order = pickle.load(file)
    asyncio.run(_serve(order))


if __name__ == "__main__":
    # Pickled values name their classes by this module's real name.
    from relive.replay.stubs.process import _main as main

    main()
