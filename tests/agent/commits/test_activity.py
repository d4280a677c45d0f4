"""What counts as a change: on played looks, and on real processes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from relive.agent.commits.activity import BUSY, Activity, ActivitySample, look
from support.waiting import eventually

SECOND = 1_000_000_000


def seen(written: int = 0, **threads: int) -> ActivitySample:
    return ActivitySample({(int(name[1:]), int(name[1:])): used for name, used in threads.items()}, written)


@pytest.mark.parametrize(
    ("now", "differs"),
    [
        (seen(t1=5, t2=5), False),
        (seen(t1=5 + int(BUSY * SECOND) // 2, t2=5 + int(BUSY * SECOND) // 2), False),  # both together
        (seen(t1=5 + int(BUSY * SECOND), t2=6), True),
        (seen(t1=5), True),
        (seen(t1=5, t2=5, t3=0), True),
        (seen(t1=5, t3=5), True),
        (seen(1, t1=5, t2=5), True),
    ],
)
def test_threads_time_and_recordings_count(now: ActivitySample, differs: bool) -> None:
    assert now.differs(seen(t1=5, t2=5), 1.0) is differs


def test_a_change_stays_one_until_the_next_commit() -> None:
    looks = iter([seen(t1=0), seen(1, t1=0), seen(1, t1=0), seen(1, t1=0), seen(1, t1=0)])
    activity = Activity(lambda: next(looks))
    assert activity.has_changed(1.0) and activity.has_changed(1.0)
    activity.committed()
    assert not activity.has_changed(1.0)


def test_a_real_process_that_waits_works_and_begets(tmp_path: Path) -> None:
    program = "import os, sys\nfor line in sys.stdin: print(eval(line), flush=True)"
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None and process.stdout is not None

        def ask(line: str) -> str:
            print(line, file=process.stdin, flush=True)
            return process.stdout.readline().strip()  # type: ignore[union-attr]

        def rest() -> ActivitySample:
            """After its last work: nothing has been used between two looks."""
            last = look(process.pid, [tmp_path])

            def is_still() -> ActivitySample | None:
                nonlocal last
                before, last = last, look(process.pid, [tmp_path])
                return last if not last.differs(before, 0.0) else None

            return eventually(is_still, "it waits")

        assert ask("1 + 1") == "2"
        before = rest()
        assert not rest().differs(before, 1.0)
        ask("sum(range(3_000_000))")
        assert rest().differs(before, 1.0)
        before = rest()
        ask("__import__('_thread').start_new_thread(sys.stdin.readline, ()) > 0")
        assert look(process.pid, [tmp_path]).differs(before, 1.0)
        process.stdin.close()
    (tmp_path / "0.log").write_text("x")
    assert look(process.pid, [tmp_path]).threads == {} and look(process.pid, [tmp_path]).written
