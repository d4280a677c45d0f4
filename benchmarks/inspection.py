"""What looking into commits costs, each beside the raw mechanism:
``benchmarks/inspection.py [--megabytes 100 500] [--objects 100000]``.

A Python service of so many megabytes, each page with words of its own, is committed twice with 1 % of its pages changed between.
Timed, after one round that is not, the middle of ``--rounds``:

- read: every page out of the packs, and nothing done with it (the raw mechanism);
- inspect: the state; find: a text that stands at the end only; find re: an expression;
- diff: all but Python; diff raw: both commits' pages laid side by side, found different by numpy (no content addresses);
- restore: a branch made and removed (the raw mechanism); eval: the same with an expression's value;
- leaks: what only grew over three commits of a service with so many objects, and three branches made and removed (raw).

Needs root and CRIU. Nothing stays.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from relive.config import Settings
from relive.containers.restore.restoring import restore
from relive.incidents.report.masking import Mask
from relive.operations.differences import DIFF, DiffParams
from relive.operations.inspections import EVALUATE, FIND, INSPECT, EvaluateParams, FindParams, InspectParams
from relive.operations.leaking import LEAKS, LeaksParams
from relive.operations.progress import Silent
from relive.sandbox.restore_request import RestoreRequest
from relive.store import Store

RELIVE = Path(sysconfig.get_path("scripts")) / "relive"
QUIET = Silent()
SERVICE = """
import os, random, signal, sys
random.seed(1)
size = int(sys.argv[1]) << 20
held = bytearray(size)
for at in range(0, size, 4096):
    held[at : at + 64] = random.randbytes(32).hex().encode()
held[-6:] = b"needle"
def change(*_):
    for at in range(0, size, 409600):
        held[at : at + 64] = random.randbytes(32).hex().encode()
    open(sys.argv[2], "w").close()
signal.signal(signal.SIGUSR1, change)
open(sys.argv[2] + ".ready", "w").close()
while True:
    signal.pause()
"""

GROWING = """
import signal, sys
held, changed = {}, 0
def grow(*_):
    global changed
    changed += 1
    start = len(held)
    held.update((number, [str(number)]) for number in range(start, start + (int(sys.argv[1]) if start == 0 else 1000)))
    open(sys.argv[2] + str(changed), "w").close()
grow()
signal.signal(signal.SIGUSR1, grow)
while True:
    signal.pause()
"""


def relive(home: Path, *words: str) -> dict[str, object]:
    """A command's answer."""
    command = [str(RELIVE), words[0], "--json", *words[1:]]
    done = subprocess.run(
        command, env={**os.environ, "RELIVE_HOME": str(home)}, check=True, stdout=subprocess.PIPE
    )
    found: dict[str, object] = json.loads(done.stdout)
    return found


def await_file(path: Path) -> None:
    """The service says by it that it is done."""
    while not path.exists():
        time.sleep(0.01)


def middle(rounds: int, work: Callable[[], object]) -> float:
    """Seconds."""
    work()
    times = []
    for _ in range(rounds):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def read_all(settings: Settings, ref: str) -> int:
    """Every page; returns bytes."""
    with (
        contextlib.closing(Store(settings.store)) as store,
        store.images.open_memory(store.facts(store.resolve(ref))) as memory,
    ):
        return sum(part.nbytes for key in memory.files for part in memory.stream(key))


def diff_raw(settings: Settings, refs: list[str]) -> int:
    """Pages that differ, found by reading all of both."""
    with contextlib.closing(Store(settings.store)) as store, contextlib.ExitStack() as stack:
        first, second = (
            stack.enter_context(store.images.open_memory(store.facts(store.resolve(ref)))) for ref in refs
        )
        return sum(
            int((one != other).any(axis=1).sum())
            for key in first.files
            for one, other in zip(first.stream(key), second.stream(key), strict=False)
            if one.shape == other.shape
        )


def branch_once(settings: Settings, ref: str) -> None:
    """A branch that lives for a moment."""
    with contextlib.closing(Store(settings.store)) as store:
        restore(settings, store, store.resolve(ref), RestoreRequest(is_owned=True)).stop()


def measure(settings: Settings, megabytes: int, rounds: int) -> None:
    """One size."""
    place, home = Path(tempfile.mkdtemp(prefix="relive-inspection-")), settings.home
    done = place / "changed"
    name = f"held{megabytes}"
    command = [sys.executable, "-c", SERVICE, str(megabytes), str(done)]
    options = ["--detach", "--no-wait", "--every", "never", "--name", name]
    started = relive(home, "run", *options, "--", *command)
    try:
        await_file(Path(f"{done}.ready"))
        before = str(relive(home, "commit", name)["id"])
        os.kill(int(str(started["pid"])), 10)
        await_file(done)
        after = str(relive(home, "commit", name)["id"])
    finally:
        relive(home, "stop", name)
        shutil.rmtree(place)
    Mask.configured(settings)  # its part in C is loaded once
    pairs: list[tuple[str, Callable[[], object]]] = [
        ("read", lambda: read_all(settings, after)),
        ("inspect", lambda: INSPECT.run(settings, InspectParams(ref=after), QUIET)),
        ("find", lambda: FIND.run(settings, FindParams(ref=after, pattern="needle"), QUIET)),
        ("find re", lambda: FIND.run(settings, FindParams(ref=after, pattern="re:nee+dle$"), QUIET)),
        ("diff raw", lambda: diff_raw(settings, [before, after])),
        ("diff", lambda: DIFF.run(settings, DiffParams(before=before, after=after), QUIET)),
        ("restore", lambda: branch_once(settings, after)),
        ("eval", lambda: EVALUATE.run(settings, EvaluateParams(ref=after, expression="len(held)"), QUIET)),
    ]
    for what, work in pairs:
        print(f"{megabytes:5d} MB  {what:9s} {middle(rounds, work) * 1000:8.0f} ms", flush=True)


def measure_growth(settings: Settings, objects: int, rounds: int) -> None:
    """One number of lists, each with a text."""
    place, home = Path(tempfile.mkdtemp(prefix="relive-inspection-")), settings.home
    done, name, refs = place / "changed", f"growing{objects}", list[str]()
    program = place / "growing.py"
    program.write_text(GROWING)
    options = ["--detach", "--no-wait", "--every", "never", "--name", name]
    started = relive(home, "run", *options, "--", sys.executable, str(program), str(objects), str(done))
    try:
        for number in range(1, 4):
            await_file(Path(f"{done}{number}"))
            refs.append(str(relive(home, "commit", name)["id"]))
            os.kill(int(str(started["pid"])), 10)
    finally:
        relive(home, "stop", name)
        shutil.rmtree(place)
    pairs: list[tuple[str, Callable[[], object]]] = [
        ("restore", lambda: [branch_once(settings, ref) for ref in refs]),
        ("leaks", lambda: LEAKS.run(settings, LeaksParams(refs=refs), QUIET)),
    ]
    for what, work in pairs:
        print(f"{objects:9,d} objects  {what:9s} {middle(rounds, work) * 1000:8.0f} ms", flush=True)


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--megabytes", type=int, nargs="+", default=[100, 500])
    parser.add_argument("--objects", type=int, nargs="+", default=[100_000])
    parser.add_argument("--rounds", type=int, default=3)
    wanted = parser.parse_args()
    home = Path(tempfile.mkdtemp(prefix="relive-home-"))
    settings = Settings(
        home=home, **({"tools": os.environ["RELIVE_TOOLS"]} if "RELIVE_TOOLS" in os.environ else {})
    )
    try:
        print(f"load {os.getloadavg()[0]:.1f}")
        for megabytes in wanted.megabytes:
            measure(settings, megabytes, wanted.rounds)
        for objects in wanted.objects:
            measure_growth(settings, objects, wanted.rounds)
    finally:
        shutil.rmtree(home, ignore_errors=True)


if __name__ == "__main__":
    main()
