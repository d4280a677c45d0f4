"""A Python service of some size, and how soon it answers in a branch: what ``lazy.py`` and ``cold.py`` have in common."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from _lab import Lab, Program, Service, free_port

from relive.containers.restore.restoring import restore
from relive.kernel.namespaces import in_network_of
from relive.model.commit import CommitId
from relive.sandbox.branch import Branch, find_branch
from relive.sandbox.restore_request import RestoreRequest

__all__ = ["SETTLE", "Times", "ask_in", "command", "one", "service"]

SETTLE = 0.3  # [s] in which the kernel takes the last branch's namespaces apart
_LIMIT = 60.0  # [s]
_RELIVE = str(Path(sysconfig.get_path("scripts")) / "relive")
_SERVICE = """
import random, socket, sys, zlib
listener = socket.create_server(("127.0.0.1", int(sys.argv[1])))
block = random.randbytes(1 << 20)
ballast = bytearray(block * int(sys.argv[2]))
for page in range(0, len(ballast), 4096):
    ballast[page:page + 8] = page.to_bytes(8, "little")
print("ready", flush=True)
while True:
    client, _ = listener.accept()
    with client:
        word = client.recv(10)
        client.sendall(str(zlib.crc32(ballast)).encode() if word == b"sum" else b"here")
"""


@dataclass(frozen=True, slots=True)
class Times:
    """Milliseconds since the call, of one branch; and the sum of its memory."""

    answers: float
    returned: float
    complete: float
    sum: str


@contextlib.contextmanager
def service(place: Lab, megabytes: int, *, inside: bool = True) -> Iterator[tuple[Service, int]]:
    """The service, once all its memory is written, and its port; every page of the memory is another.

    Args:
        inside: with Relive's recorder.
    """
    port = free_port()
    source = place.fresh("service") / "service.py"
    source.write_text(_SERVICE)
    words = [sys.executable, str(source), str(port), str(megabytes)]
    with place.capsule(Program(f"python-{megabytes}", words, port=port, inside=inside)) as running:
        _until_ready(running.output)
        yield running, port


def _ask(branch: Branch, port: int, word: bytes) -> str:
    """What the service answers in the branch."""
    return ask_in(branch.facts.init, port, word)


def ask_in(pid: int, port: int, word: bytes) -> str:
    """What the service answers in the network namespace of a process."""

    def connect() -> socket.socket:
        return socket.create_connection(("127.0.0.1", port), timeout=_LIMIT)

    with in_network_of(pid, connect) as connection:
        connection.sendall(word)
        return connection.recv(100).decode()


def one(
    place: Lab, commit: CommitId, port: int, *, lazily: bool, before: Callable[[], None] | None = None
) -> Times:
    """One branch, made and ended, in a process of its own.

    Args:
        before: called in that process when it has loaded what every restore needs, just before the restore.
    """
    time.sleep(SETTLE)
    ours, theirs = socket.socketpair()
    worker = os.fork()
    if worker == 0:
        try:
            theirs.sendall(json.dumps(_measured(place, commit, port, lazily, before)).encode())
        finally:
            os._exit(0)
    theirs.close()
    with ours:
        data = ours.recv(1 << 16)
    os.waitpid(worker, 0)
    if not data:
        raise SystemExit("error: restore failed")
    return Times(**json.loads(data))


def _measured(
    place: Lab, commit: CommitId, port: int, lazily: bool, before: Callable[[], None] | None
) -> dict[str, Any]:
    with contextlib.closing(place.store()) as loaded:
        loaded.manifest(commit)
    # What every restore needs is loaded, as in a process that has restored before.
    import relive.sandbox.lazy.daemon  # noqa: PLC0415
    import relive.store.images  # noqa: F401, PLC0415

    store = place.store()  # which has read nothing of the commit
    if before is not None:
        before()
    began = time.perf_counter()
    branch = restore(place.settings, store, commit, RestoreRequest(lazily=lazily))
    try:
        returned = time.perf_counter()
        _ask(branch, port, b"are you there?")
        answered = time.perf_counter()
        while (memory := branch.memory) is not None and not memory.is_complete:
            time.sleep(0.002)
        complete = time.perf_counter() if lazily else returned
        total = _ask(branch, port, b"sum")
    finally:
        branch.stop()
    spans = {"answers": answered, "returned": returned, "complete": complete}
    return {name: (moment - began) * 1e3 for name, moment in spans.items()} | {"sum": total}


def command(
    place: Lab,
    commit: CommitId,
    port: int,
    *options: str,
    environment: Mapping[str, str] = {},
    before: Callable[[], None] | None = None,
) -> float:
    """Milliseconds from the start of ``relive restore`` until the service has answered.

    Args:
        environment: variables of the command beside those of its RELIVE_HOME.
        before: called just before.
    """
    time.sleep(SETTLE)
    words = [_RELIVE, "restore", "--json", *options, commit]
    if before is not None:
        before()
    began = time.perf_counter()
    done = subprocess.run(words, check=True, env=place.environment() | environment, capture_output=True)
    branch = find_branch(place.settings, json.loads(done.stdout)["id"])
    try:
        _ask(branch, port, b"are you there?")
        return (time.perf_counter() - began) * 1e3
    finally:
        branch.stop()


def _until_ready(output: Path) -> None:
    deadline = time.monotonic() + _LIMIT
    while "ready" not in output.read_text():
        if time.monotonic() > deadline:
            raise SystemExit("error: the service did not come up")
        time.sleep(0.05)
