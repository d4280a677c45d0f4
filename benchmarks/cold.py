"""How soon a service answers in a branch when nothing of its commit is in memory: whole, lazily, as typed; in pairs with CRIU.

    python benchmarks/cold.py [--rounds 5] [--megabytes 43 --megabytes 328] [--json]

The service is that of ``lazy.py`` (``_sized_service.py``). Before each restore the kernel gives up what it has of the store, of
CRIU's images on the bare side, and of Relive's tools (posix_fadvise(2)); what processes have mapped stays, such as Python.
``answers`` is the time until the service has answered a connection in the branch: from the call in a process that has everything
loaded, or from the start of the command ``relive restore``. The bare side is that of ``branch.py``: ``unshare``, in it ``criu
restore``, and loopback brought up. In each round the sum of all memory is asked for, too; they have to be equal.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import time
from collections.abc import Iterable
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

from relive.kernel import loopback, procfs
from relive.kernel.namespaces import in_network_of
from relive.model.commit import CommitId


def forget(places: Iterable[Path]) -> None:
    """Have the kernel give up what it has in memory of the files below some directories."""
    for place in places:
        for path in place.rglob("*"):
            if path.is_symlink() or not path.is_file():
                continue
            with contextlib.suppress(OSError):  # it has just been removed
                file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
                try:
                    os.fdatasync(file)  # what is not on the disk yet stays in memory
                    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
                finally:
                    os.close(file)


def bare_once(bare: BareSide, port: int) -> tuple[float, str]:
    """Milliseconds until the service has answered, and the sum of its memory."""
    with bare.prepared() as (process, work, go, done):
        time.sleep(SETTLE)
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
        everything = (place.settings.home, place.settings.tools_path)
        for number in range(rounds + 1):
            for way in ("bare", "whole", "lazy", "command", "command --lazy"):
                forget(everything)
                if way == "bare":
                    took, total = bare_once(bare, port)
                    sums.add(total)
                elif way.startswith("command"):
                    took = command(place, commit, port, *way.split()[1:])
                else:
                    times = one(place, commit, port, lazily=way == "lazy")
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
