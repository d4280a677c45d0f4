"""The moment at which a target's files are looked at: everything stands still, and CRIU is still at work."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from relive.checkpoint import dump as room
from relive.checkpoint.criu import CriuDied, CriuTools
from relive.checkpoint.dump import capture
from relive.checkpoint.dumped import Capture
from relive.checkpoint.request_gate import NoRequestGate, RequestGate
from relive.checkpoint.target import StoppedBy, process_target
from relive.checkpoint.watchdog import Watchdog
from relive.config import load_settings
from relive.errors import CommitFailed, DiskFull, ProcessGone, ReliveError
from relive.images.image_directory import ImageDirectory
from relive.kernel import procfs
from relive.model.commit import Cursor, Trigger
from relive.store import Store

BUSY = """
import os, sys, threading
def work():
    while True: pass
for _ in range(8): threading.Thread(target=work, daemon=True).start()
if not os.fork(): work()
print("ready", flush=True)
work()
"""


@pytest.fixture
def busy() -> Iterator[int]:
    """A process of nine threads, with a child, none of which ever waits."""
    process = subprocess.Popen(
        [sys.executable, "-c", BUSY],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    yield process.pid
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, 9)
    process.wait()
    process.stdout.close()


def states(root: int) -> str:
    return "".join(
        (Path(f"/proc/{pid}/task/{thread}/stat").read_text().rpartition(")")[2].split()[0])
        for pid in procfs.tree_of(root)
        for thread in procfs.threads_of(pid)
    )


def take(home: Path, pid: int, gate: RequestGate | None = None, stopped: StoppedBy | None = None) -> Capture:
    settings = load_settings(home=home, tools=load_settings().tools_path)
    with (
        contextlib.closing(Store(settings.store)) as store,
        Watchdog(CriuTools(settings.tools_path).watchdog) as watchdog,
    ):
        taken = capture(
            process_target(pid),
            Trigger.MANUAL,
            settings=settings,
            store=store,
            watchdog=watchdog,
            gate=gate,
            stopped=stopped,
        )
        taken.staging.discard()
        return taken


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch, busy: int) -> list[tuple[str, str]]:
    """(states of all threads, names of the images so far) at each look."""
    seen = []
    look = room._Dump._look_frozen

    def note(dump: Any, **words: bool) -> None:
        seen.append((states(busy), " ".join(os.listdir(dump._staging.images))))
        look(dump, **words)

    monkeypatch.setattr(room._Dump, "_look_frozen", note)
    return seen


def test_files_are_looked_at_while_all_stand_still_and_memory_is_still_being_written(
    tmp_path: Path, busy: int, looks: list[tuple[str, str]]
) -> None:
    # On a busy machine CRIU may be done before this process has the floor.
    while not looks or "pstree.img" in looks[-1][1]:
        assert len(looks) < 10
        take(tmp_path, busy)
    stopped, _ = looks[-1]
    # CRIU lets each leader run again, with code of its own, as soon as it turns to it.
    assert stopped.count("t") >= len(stopped) - 2 >= 8
    assert "t" not in states(busy)


def test_who_dumps_goes_before_all_ordinary_work_until_they_run_again(
    tmp_path: Path, busy: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    try:
        os.sched_setscheduler(busy, os.SCHED_RR, os.sched_param(1))
    except PermissionError:
        pytest.skip("no real-time priority here")
    os.sched_setscheduler(busy, os.SCHED_OTHER, os.sched_param(0))
    monkeypatch.setattr(room, "_BEFORE_OTHERS_MOST", 600.0)
    policies = []
    stand = room._Dump._stands_still

    def note(dump: Any, **words: bool) -> None:
        tracer = int(procfs.status_field(busy, "TracerPid") or 0)
        policies.extend(os.sched_getscheduler(pid) for pid in (tracer, 0, busy))
        stand(dump, **words)

    monkeypatch.setattr(room._Dump, "_stands_still", note)
    take(tmp_path, busy)
    first = os.SCHED_RR | os.SCHED_RESET_ON_FORK
    assert policies == [first, first, os.SCHED_OTHER]
    assert os.sched_getscheduler(0) == os.sched_getscheduler(busy) == os.SCHED_OTHER


def policies_of_a_dump(
    home: Path, pid: int, monkeypatch: pytest.MonkeyPatch, stopped: StoppedBy | None
) -> list[int]:
    """Of CRIU and of this thread, while the process stands still."""
    found: list[int] = []
    monkeypatch.setattr(room, "_BEFORE_OTHERS_MOST", 600.0)
    stand = room._Dump._stands_still

    def note(dump: Any, **words: bool) -> None:
        tracer = int(procfs.status_field(pid, "TracerPid") or 0)
        found.extend(os.sched_getscheduler(one) for one in (tracer, 0))
        stand(dump, **words)

    monkeypatch.setattr(room._Dump, "_stands_still", note)
    take(home, pid, stopped=stopped)
    return found


def test_for_what_stands_before_its_fatal_signal_nobody_hurries(
    tmp_path: Path, busy: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits for nothing; others of the host do."""
    stopped = StoppedBy(signal.SIGSEGV, busy, busy)
    assert policies_of_a_dump(tmp_path, busy, monkeypatch, stopped) == [os.SCHED_OTHER] * 2


def test_where_real_time_is_refused_the_commit_is_taken_all_the_same(
    tmp_path: Path, busy: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "sched_setscheduler", refuse)
    assert policies_of_a_dump(tmp_path, busy, monkeypatch, None) == [os.SCHED_OTHER] * 2


def test_without_the_hint_they_are_looked_at_when_the_dump_is_done(
    tmp_path: Path, busy: int, looks: list[tuple[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "_FIRST_AFTER_FREEZE", "never.img")
    take(tmp_path, busy)
    ((stopped, images),) = looks
    assert set(stopped) == {"t"}
    assert "pstree.img" in images


def test_an_error_at_the_look_gives_the_commit_up_and_the_target_runs_on(
    tmp_path: Path, busy: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_dump: Any, **_words: bool) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(room._Dump, "_look_frozen", fail)
    with pytest.raises(ZeroDivisionError):
        take(tmp_path, busy)
    assert "t" not in states(busy)


def test_a_target_that_ends_amid_its_commit_is_told_as_that(tmp_path: Path, busy: int) -> None:
    class Killing(NoRequestGate):
        def close(self) -> None:
            os.killpg(busy, 9)

    with pytest.raises(ProcessGone, match="ended while it was being committed"):
        take(tmp_path, busy, Killing())
    assert list((tmp_path / "store" / "incoming").iterdir()) == []
    assert list((tmp_path / "store").glob("making/??/*")) == []


@pytest.mark.parametrize("also_target", [False, True])
def test_a_criu_that_is_killed_amid_a_commit_is_the_cause_of_what_failed(
    tmp_path: Path, busy: int, monkeypatch: pytest.MonkeyPatch, *, also_target: bool
) -> None:
    """Also where the target ends with it, as it may by itself, since CRIU runs code of its own in it."""
    killed: list[int] = []

    def kill(_dump: Any, **_words: bool) -> None:
        status = Path(f"/proc/{busy}/status").read_text()
        criu = int(status.partition("TracerPid:")[2].split()[0])
        if not criu:
            return  # on a busy machine it may be done by now
        if also_target:
            os.killpg(busy, 9)
        os.kill(criu, 9)
        killed.append(criu)

    monkeypatch.setattr(room._Dump, "_look_frozen", kill)
    failed: ReliveError | None = None
    for _ in range(10):
        try:
            take(tmp_path, busy)
        except (CommitFailed, ProcessGone) as error:
            failed = error
            break
    assert killed
    assert isinstance(failed, ProcessGone if also_target else (CommitFailed, ProcessGone))
    cause: BaseException | None = failed
    while cause is not None and not isinstance(cause, CriuDied):
        cause = cause.__cause__
    assert isinstance(cause, CriuDied)


class Noted(NoRequestGate):
    """A gate that notes what the recording would say."""

    def __init__(self) -> None:
        self.said: list[str | None] = []

    def close(self) -> Cursor:
        return Cursor(sequence=1)

    def open(
        self, capture: str | None, cursor: Cursor | None, images: ImageDirectory | None
    ) -> Cursor | None:
        self.said.append(capture)
        return super().open(capture, cursor, images)


@pytest.mark.parametrize("hint", ["files.img", "never.img"])
def test_a_commit_that_fails_in_the_last_moment_is_not_recorded_as_taken(
    tmp_path: Path, busy: int, monkeypatch: pytest.MonkeyPatch, hint: str
) -> None:
    def fail(_dump: Any, **_words: bool) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(room, "_FIRST_AFTER_FREEZE", hint)
    monkeypatch.setattr(room._Dump, "_look_frozen", fail)
    gate = Noted()
    with pytest.raises(ZeroDivisionError):
        take(tmp_path, busy, gate)
    assert gate.said == [None]


@pytest.fixture
def few_inodes(tmp_path: Path) -> Iterator[Path]:
    point = tmp_path / "disk"
    point.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "nr_inodes=300", "tmpfs", str(point)], check=True)
    yield point
    subprocess.run(["umount", "-l", str(point)], check=True)


def test_without_inodes_it_is_a_full_disk_and_never_anything_else(few_inodes: Path, busy: int) -> None:
    """At every point at which they can end: CRIU is content without its last image, which says how long it took."""
    take(few_inodes, busy)
    refused, left = list[DiskFull](), 4
    while True:
        for number in range(os.statvfs(few_inodes).f_ffree - left):
            (few_inodes / f"ballast-{number}").touch()
        gate = Noted()
        try:
            taken = take(few_inodes, busy, gate)
        except DiskFull as error:
            refused.append(error)
            taken = None
        assert gate.said in ([[], [None]] if taken is None else [[taken.name]])
        assert "t" not in states(busy)
        for path in few_inodes.glob("ballast-*"):
            path.unlink()
        if taken is not None:
            break
        left += 3
    assert len(refused) > 5
    assert all("inodes" in (one.remedy or "") for one in refused)
