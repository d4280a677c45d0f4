"""Checkpoint archives of a container in Relive's store, beside keeping the archives.

    python benchmarks/archives.py [--rounds 5] [--megabytes 100] [--json]

A Python process of the given size (half of it bytes that do not compress, half of it small objects; some hundred pages
change in a second) runs in a container of podman and is checkpointed twice with ``--export``, a second apart. In each round
both archives are taken into a fresh store, once for each compression that podman has. ``import`` is the time from the call
until the commit is durable, in a process that has everything loaded; ``command`` that of `relive import` as typed. ``keeps`` is
what the store has grown by, ``archive`` the file's size, which is what keeping it would take. ``export`` is the time to write
the later commit as an archive again.
"""

from __future__ import annotations

import argparse
import contextlib
import shutil
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

from _lab import Lab, add_options, lab, load_average, median, print_json, print_table, quartiles

from containers import Podman
from relive.checkpoint.criu import CriuTools
from relive.checkpoint.target import host_facts
from relive.containers.archive.compression import Compression
from relive.containers.archive.exporting import export_checkpoint
from relive.model.commit import CommitId
from relive.operations.imports import import_archive
from relive.store import Store

_APART = 1.0  # [s] between the two checkpoints
_IMAGE = "relive-benchmark"
_PROGRAM = """
import random, sys, time
megabytes = int(sys.argv[1])
ballast = bytearray(random.randbytes(megabytes << 19))
objects = [str(number) for number in range(megabytes << 13)]
print("ready", flush=True)
while True:
    for _ in range(10):
        ballast[random.randrange(len(ballast))] ^= 1
    time.sleep(0.05)
"""
_RELIVE = "import sys; from relive.cli import main; sys.exit(main())"


@contextlib.contextmanager
def _silent(_what: str, _total: int) -> Iterator[Callable[[int], None]]:
    yield lambda _done: None


def _no_keys() -> object:
    raise AssertionError("checkpoint archives have no keys")


@contextlib.contextmanager
def container(place: Lab, megabytes: int) -> Iterator[tuple[Podman, str]]:
    """The program in a container that has its memory."""
    podman, name = Podman(place), "ballast"
    try:
        podman.make_image()
        interpreter = Path(sys._base_executable).resolve()  # type: ignore[attr-defined]
        podman(
            "run",
            "-d",
            "--name",
            name,
            "--network",
            "none",
            _IMAGE,
            str(interpreter),
            "-c",
            _PROGRAM,
            str(megabytes),
        )
        until = time.monotonic() + 30
        while "ready" not in podman("logs", name):
            if time.monotonic() > until:
                raise SystemExit("error: the program in the container does not get ready")
            time.sleep(0.1)
        yield podman, name
    finally:
        podman.close()


def checkpoints(podman: Podman, name: str, compression: Compression, directory: Path) -> list[Path]:
    """Two archives of the container, which runs on."""
    found = []
    for number in range(2):
        found.append(directory / f"{compression.value}-{number}.archive")
        options = ["--leave-running", "--export", str(found[-1]), "--compress", compression.value]
        podman("container", "checkpoint", *options, name)
        time.sleep(_APART)
    return found


def take_in(place: Lab, store: Store, path: Path) -> tuple[float, int, CommitId]:
    """(milliseconds, bytes the store has grown by, the commit)."""
    here = host_facts(CriuTools(place.settings.tools_path).version)
    began = time.perf_counter()
    taken = import_archive(store, path, here, keys=_no_keys, force=False, show=_silent)  # type: ignore[arg-type]
    return (time.perf_counter() - began) * 1e3, taken.bytes, taken.commit


def one_round(place: Lab, archives: list[Path], compression: Compression) -> dict[str, float]:
    """Both archives into a fresh store, and the later one out again; and the first one by the command, into another."""
    found: dict[str, float] = {}
    home = place.fresh("archives")
    store = Store(home / "store")
    store.make_ready()
    try:
        for when, path in zip(("first", "later"), archives, strict=True):
            found[f"{when} archive"] = path.stat().st_size
            found[f"{when} import"], found[f"{when} keeps"], commit = take_in(place, store, path)
        began = time.perf_counter()
        export_checkpoint(
            store, commit, home / "out", compression, only_to_inspect=False, force=False, show=_silent
        )
        found["export"] = (time.perf_counter() - began) * 1e3
    finally:
        store.close()
        shutil.rmtree(home)
    other = place.fresh("archives")
    began = time.perf_counter()
    command = [sys.executable, "-c", _RELIVE, "import", str(archives[0])]
    environment = place.environment() | {"RELIVE_HOME": str(other)}
    subprocess.run(command, env=environment, check=True, capture_output=True)
    found["command"] = (time.perf_counter() - began) * 1e3
    shutil.rmtree(other)
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    add_options(parser, rounds=5)
    parser.add_argument("--megabytes", type=int, default=100, help="of the program's memory (default 100)")
    options = parser.parse_args()
    samples: dict[Compression, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    with lab(options) as place, container(place, options.megabytes) as (podman, name):
        archives = {one: checkpoints(podman, name, one, place.fresh("checkpoints")) for one in Compression}
        for _ in range(options.rounds):
            for compression, paths in archives.items():
                for key, value in one_round(place, paths, compression).items():
                    samples[compression][key].append(value)
    if options.json:
        values = {one.value: {key: median(them) for key, them in of.items()} for one, of in samples.items()}
        print_json({"megabytes": options.megabytes, "load": load_average(), "medians": values})
        return
    for when in ("first", "later"):
        rows = [_row(compression, when, of) for compression, of in samples.items()]
        print_table(f"{when} checkpoint, {options.megabytes} MB, load {load_average()}", rows)


def _row(compression: Compression, when: str, of: dict[str, list[float]]) -> dict[str, object]:
    row: dict[str, object] = {
        "archive is": compression.value,
        "archive MB": f"{median(of[f'{when} archive']) / 1e6:.2f}",
        "store keeps MB": f"{median(of[f'{when} keeps']) / 1e6:.2f}",
        "import ms": f"{median(of[f'{when} import']):.0f} ({quartiles(of[f'{when} import'])})",
    }
    last = "command" if when == "first" else "export"
    return row | {f"{last} ms": f"{median(of[last]):.0f}"}


if __name__ == "__main__":
    main()
