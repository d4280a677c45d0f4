"""Several processes on one store: everything that one was told is durable is there for all, and whole."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from relive.store import Store

from .builders import beyond, commit, is_whole
from .busy_process import ROUNDS

TESTS = Path(__file__).parent.parent


@pytest.fixture
def home(memory_directory: Path) -> Path:
    """These processes sync; who waits for a disk meets the others less often, not more."""
    return memory_directory / "store"


class Busy:
    """One process, that begins when it is told."""

    def __init__(self, work: str, home: Path, number: int) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "store.busy_process", work, str(home), str(number)],
            env={**os.environ, "PYTHONPATH": str(TESTS)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def is_ready(self) -> bool:
        assert self.process.stdout is not None
        return self.process.stdout.readline() == "ready\n"


def run_together(home: Path, *works: str) -> list[list[str]]:
    """What each reported as durable."""
    all_busy = [Busy(work, home, number) for number, work in enumerate(works)]
    assert all(busy.is_ready() for busy in all_busy)
    for busy in all_busy:
        assert busy.process.stdin is not None
        busy.process.stdin.write("go\n")
        busy.process.stdin.flush()
    reports = []
    for busy in all_busy:
        out, err = busy.process.communicate(timeout=60)
        assert busy.process.returncode == 0, err
        reports.append(out.split())
    return reports


def check(home: Path, *reports: list[str]) -> None:
    store = Store(home)
    listed = {line.id for line in store.log()}
    assert {path.stem for path in (home / "manifests").iterdir()} == listed
    for report in reports:
        assert set(report) <= listed
    assert all(is_whole(store, line.id) for line in store.log())
    store.close()


def test_processes_that_open_a_store_where_there_is_none_make_one(home):
    reports = run_together(home, "add", "add", "add")
    assert all(reports)
    check(home, *reports)


def test_one_adds_while_another_drops_what_they_share(home):
    reports = run_together(home, "add", "thin", "thin")
    check(home, reports[0])


def test_two_commit_their_series_while_a_third_drops_parents(home):
    """Every commit that is left is whole, though what it was stored against may be gone; nothing useless is left."""
    first, second, _ = run_together(home, "series", "series", "drop")
    assert (len(first), len(second)) == (ROUNDS, ROUNDS)
    store = Store(home)
    lines = store.log()
    assert {lines[0].id} <= {first[-1], second[-1]}
    assert all(is_whole(store, line.id) for line in lines)
    store.thin("pay0", beyond(1))
    store.thin("pay1", beyond(1))
    left = store.log()
    assert len(left) <= 2
    assert all(is_whole(store, line.id) for line in left)
    needed = {name for line in left for name in store.internals.placements.read(line.id).needed()}
    assert {path.name for path in (home / "packs").iterdir()} == needed
    store.close()


def test_a_tagged_commit_can_be_read_while_others_are_dropped(home):
    store = Store(home)
    kept = commit(store, name="pay1", files={"empty": b"", "turn": b"7"}).id
    store.tag("kept", kept)
    store.close()
    run_together(home, "read", "thin")
    check(home, [kept])


def test_only_who_asks_for_pages_waits_for_numpy_and_no_thread_comes_with_it(home):
    """In a process of its own, since this one has long loaded it."""
    script = """
import os, sys
from pathlib import Path
from relive.store import Store
store = Store(Path(sys.argv[1]))
store.log(), store.tags(), store.thin("pay", lambda lines: [])
assert "numpy" not in sys.modules
from store.builders import commit, is_whole
assert is_whole(store, commit(store).id)
assert "numpy" in sys.modules
from support.waiting import eventually
# /proc shows a thread that was joined until the kernel has done with it.
eventually(lambda: len(os.listdir("/proc/self/task")) == 1, "no thread is left")
assert "OPENBLAS_NUM_THREADS" not in os.environ
print("done")
"""
    environment = {name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}
    done = subprocess.run(
        [sys.executable, "-c", script, str(home)],
        env={**environment, "PYTHONPATH": str(TESTS)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("done\n", "")
