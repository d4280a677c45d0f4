"""How soon a large service answers in a branch: restored lazily and whole, in pairs.

    python benchmarks/lazy.py [--rounds 7] [--megabytes 450] [--json]

The service holds that much memory, every page different, and listens on a port. In each round both ways of restoring it run
once, in processes of their own that have everything loaded, as the agent or a replay has. ``answers`` is the time from the
call until the service has answered one connection inside the branch; ``returned`` until the call has come back; ``all there``
until no page is missing any more (then the branch is told to add its memory up, and the sums must be equal).
``command`` is the whole command ``relive restore``, from the start of Python until the service has answered.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from _lab import (
    Lab,
    Program,
    add_options,
    free_port,
    lab,
    load_average,
    median,
    print_json,
    print_table,
    quartiles,
)

from relive.containers.restore.restoring import restore
from relive.kernel.namespaces import in_network_of
from relive.model.commit import CommitId
from relive.sandbox.branch import Branch, find_branch
from relive.sandbox.restore_request import RestoreRequest

_SETTLE = 0.3  # [s] in which the kernel takes the last branch's namespaces apart
_LIMIT = 60.0  # [s]
SERVICE = """
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


def ask(branch: Branch, port: int, word: bytes) -> str:
    """What the service answers in the branch."""
    return ask_in(branch.facts.init, port, word)


def ask_in(pid: int, port: int, word: bytes) -> str:
    """What the service answers in the network namespace of a process."""

    def connect() -> socket.socket:
        return socket.create_connection(("127.0.0.1", port), timeout=_LIMIT)

    with in_network_of(pid, connect) as connection:
        connection.sendall(word)
        return connection.recv(100).decode()


def one(place: Lab, commit: CommitId, port: int, *, lazily: bool) -> Times:
    """One branch, made and ended, in a process of its own."""
    time.sleep(_SETTLE)
    ours, theirs = socket.socketpair()
    worker = os.fork()
    if worker == 0:
        try:
            theirs.sendall(json.dumps(_measured(place, commit, port, lazily=lazily)).encode())
        finally:
            os._exit(0)
    theirs.close()
    with ours:
        data = ours.recv(1 << 16)
    os.waitpid(worker, 0)
    if not data:
        raise SystemExit("error: restore failed")
    return Times(**json.loads(data))


def _measured(place: Lab, commit: CommitId, port: int, *, lazily: bool) -> dict[str, Any]:
    store = place.store()
    store.manifest(commit)
    # What every restore needs is loaded, as in a process that has restored before.
    import relive.sandbox.lazy.daemon  # noqa: PLC0415
    import relive.store.images  # noqa: F401, PLC0415

    began = time.perf_counter()
    branch = restore(place.settings, store, commit, RestoreRequest(lazily=lazily))
    try:
        returned = time.perf_counter()
        ask(branch, port, b"are you there?")
        answered = time.perf_counter()
        while (memory := branch.memory) is not None and not memory.is_complete:
            time.sleep(0.002)
        complete = time.perf_counter() if lazily else returned
        total = ask(branch, port, b"sum")
    finally:
        branch.stop()
    spans = {"answers": answered, "returned": returned, "complete": complete}
    return {name: (moment - began) * 1e3 for name, moment in spans.items()} | {"sum": total}


def command(place: Lab, commit: CommitId, port: int, *options: str) -> float:
    """Milliseconds from the start of ``relive restore`` until the service has answered."""
    time.sleep(_SETTLE)
    program = "import sys; from relive.cli import main; sys.exit(main())"
    words = [sys.executable, "-c", program, "restore", "--json", *options, commit]
    began = time.perf_counter()
    done = subprocess.run(words, check=True, env=place.environment(), capture_output=True)
    branch = find_branch(place.settings, json.loads(done.stdout)["id"])
    try:
        ask(branch, port, b"are you there?")
        return (time.perf_counter() - began) * 1e3
    finally:
        branch.stop()


def measure(place: Lab, megabytes: int, rounds: int) -> dict[str, Any]:
    """All rounds."""
    port = free_port()
    source = place.fresh("service") / "service.py"
    source.write_text(SERVICE)
    program = Program(
        f"python-{megabytes}", [sys.executable, str(source), str(port), str(megabytes)], port=port
    )
    with place.capsule(program) as service:
        until_ready(service.output)
        commit = CommitId(service.commit()["id"])
        pairs = [
            (one(place, commit, port, lazily=False), one(place, commit, port, lazily=True))
            for _ in range(rounds + 1)
        ][1:]  # the first warms up
        commands = [
            (command(place, commit, port), command(place, commit, port, "--lazy"))
            for _ in range(max(3, rounds // 2))
        ]
    if len({times.sum for pair in pairs for times in pair}) != 1:
        raise SystemExit("error: the memory differs")
    rows = [_row(name, [(getattr(a, key), getattr(b, key)) for a, b in pairs]) for name, key in _COLUMNS]
    return {"megabytes": megabytes, "rows": [*rows, _row("command", commands)]}


_COLUMNS = (("answers", "answers"), ("returned", "returned"), ("all there", "complete"))


def _row(name: str, pairs: list[tuple[float, float]]) -> dict[str, Any]:
    whole, lazy = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    return {
        "until it": name,
        "whole ms": median(whole),
        "whole iqr": quartiles(whole),
        "lazy ms": median(lazy),
        "lazy iqr": quartiles(lazy),
        "lazy/whole": median(b / a for a, b in pairs),
    }


def until_ready(output: Path) -> None:
    deadline = time.monotonic() + _LIMIT
    while "ready" not in output.read_text():
        if time.monotonic() > deadline:
            raise SystemExit("error: the service did not come up")
        time.sleep(0.05)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_options(parser, 7)
    parser.add_argument("--megabytes", type=int, default=450, help="memory of the service (default 450)")
    options = parser.parse_args()
    with lab(options) as place:
        result = measure(place, options.megabytes, options.rounds)
    result |= {"rounds": options.rounds, "load": load_average()}
    if options.json:
        print_json(result)
    else:
        title = (
            f"A service of {options.megabytes} MB, medians of {options.rounds} pairs (load {result['load']})"
        )
        print_table(title, result["rows"])


if __name__ == "__main__":
    main()
