"""Whatever a probe does, there is a row, in time, and nothing of it stays."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from relive.doctor import Finding, ProbeOutcome, is_ready
from relive.doctor.finding import Obstacle, ProbeResult, works
from relive.doctor.probe import Probe, ProbeContext
from relive.doctor.scratch import Scratch, file_system_of, nearest_existing
from relive.errors import DiskFull
from relive.kernel import procfs

from .conftest import LIMIT

TryOne = Callable[..., Finding]


def probe(run: Callable[[ProbeContext], ProbeResult], *, limit: float = 10.0, required: bool = True) -> Probe:
    return Probe("fake", required, limit, run, "the usual remedy")


def test_a_result_arrives_whole(try_one: TryOne) -> None:
    long = "ü" * 200_000  # more than a pipe holds at once
    finding = try_one(probe(lambda _ground: works(long)))
    assert (finding.name, finding.outcome, finding.found) == ("fake", ProbeOutcome.WORKS, long)


@pytest.mark.parametrize(
    ("error", "found", "cause", "remedy"),
    [
        (
            ZeroDivisionError("oh"),
            "the probe crashed",
            "ZeroDivisionError: oh (in run, test_probe.py)",
            "report it",
        ),
        (SystemExit(3), "the probe crashed", "SystemExit: 3", "report it"),
        (Obstacle("no", cause="why"), "no", "why", "the usual remedy"),
        (Obstacle("no", cause="why", remedy="this"), "no", "why", "this"),
        (DiskFull("full", cause="why", remedy="this"), "full", "why", "this"),
        (DiskFull("full"), "full", "full", "the usual remedy"),
        (
            OSError(1, "mount: Operation not permitted"),
            "Operation not permitted",
            "mount",
            'row "privileges"',
        ),
        (OSError(28, "No space left"), "No space left on device", "No space left", "free space"),
        (OSError(22, "Invalid"), "Invalid argument", "Invalid", "the usual remedy"),
    ],
)
def test_what_a_probe_raises_becomes_a_row(
    try_one: TryOne, error: BaseException, found: str, cause: str, remedy: str
) -> None:
    def run(_ground: ProbeContext) -> ProbeResult:
        raise error

    finding = try_one(probe(run))
    assert finding.outcome is ProbeOutcome.FAILS and finding.found == found
    assert cause in str(finding.cause) and remedy in str(finding.remedy)


@pytest.mark.parametrize("end", ["signal", "status"])
def test_a_probe_that_dies_is_a_row(try_one: TryOne, end: str) -> None:
    def run(_ground: ProbeContext) -> ProbeResult:
        if end == "signal":
            os.kill(os.getpid(), signal.SIGKILL)
        os._exit(3)

    finding = try_one(probe(run))
    assert finding.found == "the probe died"
    assert ("SIGKILL" if end == "signal" else "status 3") in str(finding.cause)


def test_a_probe_that_hangs_is_killed_with_all_it_started(try_one: TryOne, tmp_path: Path) -> None:
    """Even a daemon in a session of its own that ignores what it can; with more time where the machine is busy."""
    note = tmp_path / "pid"

    def run(_ground: ProbeContext) -> ProbeResult:
        _start_daemon(note)
        signal.pause()
        raise AssertionError

    for limit in (0.5, 5.0, 20.0):
        finding = try_one(probe(run, limit=limit))
        assert (finding.found, finding.remedy) == ("no answer", "the usual remedy")
        assert f"{limit:g} s" in str(finding.cause)
        if note.exists():
            break
    assert not procfs.exists(int(note.read_text()))


def test_a_probe_that_works_takes_along_what_it_started(try_one: TryOne, tmp_path: Path) -> None:
    note = tmp_path / "pid"

    def run(_ground: ProbeContext) -> ProbeResult:
        _start_daemon(note)
        return works("done")

    assert try_one(probe(run)).outcome is ProbeOutcome.WORKS
    assert not procfs.exists(int(note.read_text()))


def _start_daemon(note: Path) -> None:
    """Fork twice; the grandchild writes its pid down and stays."""
    reading, writing = os.pipe()
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            noted = note.with_suffix(".new")
            noted.write_text(str(os.getpid()))
            noted.rename(note)  # it is there whole, or not
            os.write(writing, b"!")
            while True:
                signal.pause()
        os._exit(0)
    os.read(reading, 1)


def test_what_a_probe_prints_is_not_seen(try_one: TryOne, capfd: pytest.CaptureFixture[str]) -> None:
    def run(_ground: ProbeContext) -> ProbeResult:
        os.write(1, b"noise")
        os.write(2, b"noise")
        return works("done")

    try_one(probe(run))
    assert capfd.readouterr() == ("", "")


def test_a_probe_writes_in_a_directory_that_is_gone_afterwards(try_one: TryOne, tmp_path: Path) -> None:
    def run(context: ProbeContext) -> ProbeResult:
        (context.directory / "sub").mkdir()
        (context.directory / "sub" / "file").write_text("x")
        return works(str(context.directory))

    place = Path(try_one(probe(run)).found)
    assert place.is_relative_to(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_killed_doctor_takes_its_probe_along(tmp_path: Path) -> None:
    """And the directory it leaves is removed by the next."""
    program = f"""
        import os, signal
        from relive.config import load_settings
        from relive.doctor import examine
        from relive.doctor.probe import Probe

        def run(ground):
            os.write(report, str(os.getpid()).encode() + b"\\n")
            signal.pause()

        report = os.dup(1)
        examine(load_settings(home="{tmp_path}"), [Probe("hangs", True, 60, run, "")])
    """
    started = subprocess.Popen([sys.executable, "-c", textwrap.dedent(program)], stdout=subprocess.PIPE)
    assert started.stdout is not None
    with started.stdout:
        handle = os.pidfd_open(int(started.stdout.readline()))
        started.kill()
        started.wait(LIMIT)
    ended, _, _ = select.select([handle], [], [], LIMIT)
    os.close(handle)
    assert ended
    assert len(list(tmp_path.iterdir())) == 1
    with Scratch(tmp_path) as scratch:
        assert scratch.failure is None
    assert list(tmp_path.iterdir()) == []


def test_the_directory_of_a_living_doctor_is_left_alone(tmp_path: Path) -> None:
    with Scratch(tmp_path) as first:
        place = first.make("probe")
        with Scratch(tmp_path):
            pass
        assert place.is_dir()


def test_only_what_is_required_and_fails_matters() -> None:
    def finding(outcome: ProbeOutcome, *, required: bool) -> Finding:
        return Finding(
            name="x", required=required, outcome=outcome, found="", cause=None, remedy=None, milliseconds=1
        )

    fine = [finding(ProbeOutcome.WORKS, required=True), finding(ProbeOutcome.LIMITED, required=True)]
    assert is_ready([*fine, finding(ProbeOutcome.FAILS, required=False)])
    assert not is_ready([*fine, finding(ProbeOutcome.FAILS, required=True)])


def test_places_are_found(tmp_path: Path) -> None:
    assert nearest_existing(tmp_path / "a" / "b") == tmp_path
    assert file_system_of(Path("/proc/self/ns")).kind == "proc"
    assert tmp_path.is_relative_to(file_system_of(tmp_path).point)
