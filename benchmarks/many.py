"""Many branches of one commit: until the last is there, and the memory that each has for itself; in pairs with CRIU alone.

    python benchmarks/many.py [--rounds 3] [--json] [--count 20] [--jobs N]

``relive restore --count N`` as the operation that all faces have, from the call to its return, beside one branch by the
same operation. The bare side is that of ``branch.py``, as often and with as many jobs, until CRIU is done: no files,
network, limits, proofs or recorded clock of its own, and all memory copied. The service is FastAPI that nobody asks
anything: those of ``branch.py`` wake up five thousand times a second each, and a hundred of them leave two cores no time
for anything else. ``PSS`` is of a branch's service, the median of ten.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import os
import time
from pathlib import Path
from typing import Any

from _lab import Lab, add_options, lab, load_average, median, print_json, print_table
from branch import BareSide

from relive.model.commit import CommitId
from relive.operations.progress import Silent
from relive.operations.restoring_many import RestoreManyParams, restore_many
from relive.sandbox.branch import find_branch

_LOOKED_AT = 10  # branches
_IDLE = """
from fastapi import FastAPI
app = FastAPI()
@app.get("/")
async def read():
    return {}
"""


def _pss(pid: int) -> float:
    """Megabytes."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024


def _round(place: Lab, params: RestoreManyParams) -> tuple[float, float]:
    """Seconds, and megabytes of PSS."""
    began = time.monotonic()
    made = restore_many(place.settings, params, Silent())
    wall = time.monotonic() - began
    alive = [one.branch for one in made.branches if one.branch is not None]
    try:
        if made.failed:
            raise SystemExit(f"error: {made.failed} of {params.count} were not restored: {made.branches}")
        return wall, median(_pss(one.root) for one in alive[:_LOOKED_AT])
    finally:
        for one in alive:
            find_branch(place.settings, one.id).stop()


def measure(place: Lab, rounds: int, count: int, jobs: int | None) -> dict[str, Any]:
    """All rounds."""
    (place.directory / "web.py").write_text(_IDLE)
    program = dataclasses.replace(place.web(), inside=False)
    with contextlib.ExitStack() as stack:
        service = stack.enter_context(place.capsule(program))
        commit = CommitId(service.commit()["id"])
        store = place.store()
        stack.callback(store.close)
        bare = BareSide(place, store, store.manifest(commit))
        stack.callback(bare.close)
        one, many = (RestoreManyParams(ref=commit, count=number, jobs=jobs) for number in (1, count))
        at_once = jobs or 2 * (os.cpu_count() or 1)
        tries = [
            (_round(place, one), _round(place, many), bare.at_a_time(count, at_once))
            for _ in range(rounds + 1)
        ][1:]
    wall = median(together for _, (together, _), _ in tries)
    return {
        "program": program.name,
        "branches": count,
        "one ms": median(alone for (alone, _), _, _ in tries) * 1e3,
        "all ms": wall * 1e3,
        "ms each": wall / count * 1e3,
        "bare ms": median(raw for _, _, raw in tries) * 1e3,
        "ratio": median(together / raw for _, (together, _), raw in tries),
        "PSS MB each": median(pss for _, (_, pss), _ in tries),
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_options(parser, 3)
    parser.add_argument("--count", type=int, default=20, help="branches (default 20)")
    parser.add_argument("--jobs", type=int, help="restores at one time (default: two for each CPU)")
    options = parser.parse_args()
    with lab(options) as place:
        result = measure(place, options.rounds, options.count, options.jobs)
    if options.json:
        print_json({"rounds": options.rounds, "load": load_average(), "many": result})
    else:
        print_table(f"Many branches, medians of {options.rounds} (load {load_average()})", [result])


if __name__ == "__main__":
    main()
