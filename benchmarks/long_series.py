"""Whether a long series stays cheap: bytes of a commit and reads of a restore, from the first commit to the last.

    python benchmarks/long_series.py [--commits 500] [--series fastapi|cache|redis] [--every 0.3] [--json]

A service runs in a capsule while its state changes (see ``_series``), and its agent commits it again and again; none is dropped.
A line tells of the commits since the line before: ``KB`` is what each added to the store (packs, placements, manifests) on
average, ``most KB`` the most that one did, ``durable ms`` the median until the agent said that it was safe. And of that one of
them which lies in the most ``packs``: by how many ``reads`` of them it was laid out, which are as many requests as a store that is
not a file system would see, how many ``MB`` these brought, and in how many ``ms``.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from _lab import Lab, add_options, lab, load_average, median, print_json, print_table
from _series import SERIES, series

from relive.model.commit import CommitId
from relive.store import Store

_LINES = (1, 10, 50, 100, 200, 300, 400, 500)
_RESTORES = 3


@dataclass(slots=True)
class Reads:
    """Reads of files at a place, counted."""

    count: int = 0
    size: int = 0


@contextlib.contextmanager
def counted_reads() -> Iterator[Reads]:
    """Of this process, in the block; the store reads its packs so."""
    reads, pread = Reads(), os.pread

    def counting(file: int, length: int, offset: int) -> bytes:
        data = pread(file, length, offset)
        reads.count += 1
        reads.size += len(data)
        return data

    os.pread = counting
    try:
        yield reads
    finally:
        os.pread = pread


def kept_bytes(store: Path) -> int:
    """What grows with commits."""
    return sum(
        entry.stat().st_size
        for kind in ("packs", "placements", "manifests")
        for entry in os.scandir(store / kind)
    )


def restore_cost(place: Lab, commits: list[CommitId]) -> dict[str, Any]:
    """What laying out the images takes, of the one of some commits that lies in the most packs."""
    store = Store(place.settings.store)
    packs = {one: len(store.internals.placements.read(one).needed()) for one in commits}
    commit = max(commits, key=lambda one: packs[one])
    manifest, times = store.manifest(commit), []
    store.make_ready()
    for _ in range(_RESTORES):
        shutil.rmtree(place.settings.store / "laid")  # else it would be laid out already
        (place.settings.store / "laid").mkdir()
        target = place.fresh("given-back")
        with counted_reads() as reads:
            began = time.perf_counter()
            store.images.lay_out(manifest, target)
            times.append((time.perf_counter() - began) * 1e3)
        shutil.rmtree(target)
    store.close()
    return {"packs": packs[commit], "reads": reads.count, "MB": reads.size / 1e6, "ms": median(times)}


def measure(place: Lab, name: str, commits: int, every: float) -> list[dict[str, Any]]:
    """A row for each of ``_LINES``, and for the last commit."""
    one = series(name)
    rows: list[dict[str, Any]] = []
    added: list[float] = []
    durable: list[float] = []
    taken: list[CommitId] = []
    with place.capsule(one.program(place)) as service:
        one.wait_until_ready(service.output)
        port = one.port or service.port
        client = one.client(port) if one.client and port else contextlib.nullcontext()
        with client:
            before = kept_bytes(place.settings.store) if place.settings.store.exists() else 0
            for number in range(1, commits + 1):
                time.sleep(every)
                answer = service.commit()
                after = kept_bytes(place.settings.store)
                added.append((after - before) / 1e3)
                durable.append(answer["durable_us"] / 1e3)
                taken.append(CommitId(answer["id"]))
                before = after
                if number in _LINES or number == commits:
                    row = {"commit": number, "KB": sum(added) / len(added), "most KB": max(added)}
                    row |= {"durable ms": median(durable)}
                    rows.append(row | restore_cost(place, taken))
                    added, durable, taken = [], [], []
    return rows


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_options(parser, 1)
    parser.add_argument("--commits", type=int, default=500, help="how many (default 500)")
    parser.add_argument("--series", choices=SERIES, default="fastapi", help="the service (default fastapi)")
    parser.add_argument("--every", type=float, default=0.3, help="seconds between two commits (default 0.3)")
    options = parser.parse_args()
    os.environ["RELIVE_KEEP"] = str(options.commits + 1)  # for the agent
    with lab(options) as place:
        rows = measure(place, options.series, options.commits, options.every)
    if options.json:
        print_json({"series": options.series, "load": load_average(), "rows": rows})
    else:
        print_table(f"{options.commits} commits of {options.series} (load {load_average()})", rows)


if __name__ == "__main__":
    main()
