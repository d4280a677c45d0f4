"""How soon a service answers in a branch when nothing of its commit is in memory: whole, lazily, as typed; in pairs with CRIU.

    python benchmarks/cold.py [--rounds 5] [--megabytes 43 --megabytes 328] [--json]

The service is that of ``lazy.py`` (``_sized_service.py``). Just before each restore the kernel gives up what it has of the store,
of CRIU's images on the bare side, and of Relive's tools (posix_fadvise(2)); before commands also of all Python files of Relive, its
packages and the standard library. What processes have mapped stays, such as the interpreter itself.

``answers`` is the time until the service has answered a connection in the branch: from the call in a process that has everything
loaded and has read nothing of the commit, or from the start of ``relive restore`` as typed: *forked* by a fork server that runs
already, or *executed* without one. The bare side is that of ``branch.py``: ``unshare``, in it ``criu restore``, and loopback
brought up. ``read`` is the floor: reading the commit's page files from the disk once, in order. ``first lazy`` are lazy restores
when nothing is known of what branches touch first. In each round the sum of all memory is asked for, too; they have to be equal.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import subprocess
import sysconfig
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from _lab import (
    Lab,
    add_options,
    lab,
    load_average,
    median,
    print_json,
    print_table,
    quartiles,
)
from _sized_service import SETTLE, ask_in, command, one, service
from branch import BareSide

import relive
from relive.forkserver.starting import fork_module
from relive.kernel import loopback, procfs
from relive.kernel.namespaces import in_network_of
from relive.model.commit import CommitId

_WAYS = (
    "read",
    "bare",
    "whole",
    "first lazy",
    "lazy",
    "command, forked",
    "command, executed",
    "command --lazy, forked",
    "command --lazy, executed",
)


def forget(places: Iterable[Path]) -> None:
    """Have the kernel give up what it has in memory of the files below some directories."""
    forget_files(path for place in places for path in place.rglob("*"))


def forget_files(paths: Iterable[Path]) -> None:
    """The same of files; what is none is left out."""
    for path in paths:
        if path.is_symlink() or not path.is_file():
            continue
        with contextlib.suppress(OSError):  # it has just been removed
            file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
            try:
                os.fdatasync(file)  # what is not on the disk yet stays in memory
                os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(file)


def have_fork_server(place: Lab) -> None:
    """One runs, for commands of this RELIVE_HOME."""
    nowhere = (subprocess.DEVNULL,) * 3
    environment = place.environment()
    forked = fork_module(
        "relive.forkserver.trial", [], streams=nowhere, environment=environment, patient=True
    )
    if forked is None or forked.wait(30) != 0:
        raise SystemExit("error: there is no fork server")


def python_files() -> list[Path]:
    """The Python files that a command may read."""
    places = {
        Path(relive.__file__).parent,
        *(Path(sysconfig.get_path(name)) for name in ("stdlib", "purelib")),
    }
    found = [path for place in places for path in place.rglob("*") if path.suffix in (".py", ".pyc", ".so")]
    return found


def read_once(images: Path) -> float:
    """Milliseconds for reading the page files in order."""
    buffer = bytearray(1 << 20)
    began = time.perf_counter()
    for path in sorted(images.glob("pages-*.img")):
        with path.open("rb", buffering=0) as file:
            while file.readinto(buffer):
                pass
    return (time.perf_counter() - began) * 1e3


def bare_once(bare: BareSide, port: int, before: Callable[[], None]) -> tuple[float, str]:
    """Milliseconds until the service has answered, and the sum of its memory."""
    with bare.prepared() as (process, work, go, done):
        time.sleep(SETTLE)
        before()
        began = time.perf_counter()
        os.write(go, b"go\n")
        if os.read(done, 5) != b"done\n":
            raise SystemExit(f"error: criu restore failed:\n{(work / 'criu.log').read_text()}")
        inside = procfs.tree_of(process.pid)[-1]
        in_network_of(inside, loopback.bring_up)
        ask_in(inside, port, b"are you there?")
        answered = (time.perf_counter() - began) * 1e3
        return answered, ask_in(inside, port, b"sum")


def measure(place: Lab, megabytes: int, rounds: int) -> dict[str, Any]:
    """All rounds of one size."""
    found: dict[str, list[float]] = {}
    sums: set[str] = set()
    with contextlib.ExitStack() as stack:
        running, port = stack.enter_context(service(place, megabytes, inside=False))
        commit = CommitId(running.commit()["id"])
        store = place.store()
        stack.callback(store.close)
        bare = BareSide(place, store, store.manifest(commit))
        stack.callback(bare.close)
        modules = python_files()

        def forget_images() -> None:
            forget((place.settings.home, place.settings.tools_path))

        def forget_all() -> None:
            forget_images()
            forget_files(modules)

        for number in range(rounds + 1):
            for way in _WAYS:
                if way == "read":
                    forget_images()
                    took = read_once(bare.images)
                elif way == "bare":
                    took, total = bare_once(bare, port, forget_images)
                    sums.add(total)
                elif way.startswith("command"):
                    have_fork_server(place)
                    options = ["--lazy"] if "lazy" in way else []
                    alone = {"RELIVE_FORK_SERVER": "0" if "executed" in way else "1"}
                    took = command(place, commit, port, *options, environment=alone, before=forget_all)
                else:
                    if way == "first lazy":
                        shutil.rmtree(place.settings.home / "touched", ignore_errors=True)
                    times = one(place, commit, port, lazily="lazy" in way, before=forget_images)
                    took = times.answers
                    sums.add(times.sum)
                if number:  # the first lays page files out, and warms up what is not forgotten
                    found.setdefault(way, []).append(took)
    if len(sums) != 1:
        raise SystemExit("error: the memory differs")
    rows = [
        {
            "MB": megabytes,
            "way": way,
            "answers ms": median(took),
            "iqr": quartiles(took),
            "to bare": median(a / b for a, b in zip(took, found["bare"], strict=True)),
        }
        for way, took in found.items()
    ]
    return {"megabytes": megabytes, "rows": rows}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_options(parser, 5)
    parser.add_argument("--megabytes", type=int, action="append", help="of the service (default 43 and 328)")
    options = parser.parse_args()
    with lab(options) as place:
        results = [measure(place, one, options.rounds) for one in options.megabytes or [43, 328]]
    load = load_average()
    if options.json:
        print_json({"rounds": options.rounds, "load": load, "sizes": results})
        return
    for result in results:
        print_table(f"Nothing in memory, medians of {options.rounds} (load {load})", result["rows"])


if __name__ == "__main__":
    main()
