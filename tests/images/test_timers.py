"""Timers that would stop, or expire at another moment, in a branch."""

from __future__ import annotations

from pathlib import Path

import pytest

from relive.images import criu_images_pb2 as pb
from relive.images.image_file import image_like, read_entries
from relive.images.timers import set_timers

HEADER = bytes.fromhex("1943565419430353")  # the second number is not looked at
RELATIVE, MOMENT, AND_CHANGES = 0, 1, 3  # flags of timerfd_settime(2)
Timer = tuple[int, int, tuple[int, int], tuple[int, int]]  # flags, ticks, what is left, period [s, ns]


@pytest.fixture
def images(tmp_path: Path) -> Path:
    (tmp_path / "files.img").write_bytes(image_like(HEADER, []))
    return tmp_path


def descriptor_in_a_branch(images: Path, timer: Timer) -> Timer:
    flags, ticks, left, period = timer
    entry = pb.FileEntry(type=17, id=3)  # TIMERFD of CRIU
    entry.tfd.id, entry.tfd.flags, entry.tfd.clockid = 3, 0, 1
    entry.tfd.settime_flags, entry.tfd.ticks = flags, ticks
    (entry.tfd.vsec, entry.tfd.vnsec), (entry.tfd.isec, entry.tfd.insec) = left, period
    (images / "files.img").write_bytes(image_like(HEADER, [entry]))
    set_timers(images, [])
    [found] = [one.tfd for one in read_entries(images / "files.img", pb.FileEntry)]
    return found.settime_flags, found.ticks, (found.vsec, found.vnsec), (found.isec, found.insec)


@pytest.mark.parametrize(
    ("saved", "given"),
    [
        ((RELATIVE, 1, (0, 0), (2, 7)), (RELATIVE, 1, (2, 7), (2, 7))),
        ((MOMENT, 4, (0, 0), (0, 7)), (RELATIVE, 4, (0, 7), (0, 7))),
        ((MOMENT, 0, (5, 6), (0, 0)), (RELATIVE, 0, (5, 6), (0, 0))),
        ((MOMENT, 0, (0, 0), (0, 0)), (RELATIVE, 0, (0, 0), (0, 0))),
    ],
    ids=["expired", "expired after a moment", "at a moment", "over"],
)
def test_what_criu_would_set_otherwise(images: Path, saved: Timer, given: Timer) -> None:
    assert descriptor_in_a_branch(images, saved) == given


@pytest.mark.parametrize(
    "saved",
    [
        (RELATIVE, 0, (1, 2), (2, 7)),
        (RELATIVE, 0, (0, 0), (2, 7)),  # it was stopped
        (RELATIVE, 1, (0, 0), (0, 0)),  # expired for good
        (AND_CHANGES, 0, (1, 2), (0, 0)),
    ],
)
def test_what_is_right_stays(images: Path, saved: Timer) -> None:
    assert descriptor_in_a_branch(images, saved) == saved


@pytest.mark.parametrize(
    ("saved", "given"),
    [((2, 7, 0, 0), (2, 7, 2, 7)), ((2, 7, 0, 3), (2, 7, 0, 3)), ((0, 0, 0, 0), (0, 0, 0, 0))],
    ids=["expired", "runs", "none"],
)
def test_the_alarm(images: Path, saved: tuple[int, ...], given: tuple[int, ...]) -> None:
    """Each as period and what is left, in seconds and microseconds."""
    core = pb.CoreEntry(mtype=1)
    core.tc.task_state, core.tc.exit_code, core.tc.blk_sigset, core.tc.comm = 1, 0, 0, "x"
    for timer, numbers in (
        (core.tc.timers.real, saved),
        *((one, (0, 0, 0, 0)) for one in (core.tc.timers.virt, core.tc.timers.prof)),
    ):
        timer.isec, timer.iusec, timer.vsec, timer.vusec = numbers
    (images / "core-2.img").write_bytes(image_like(HEADER, [core]))
    set_timers(images, [pb.PstreeEntry(pid=one, ppid=0, pgid=2, sid=2, threads=[one]) for one in (2, 9)])
    [found] = [one.tc.timers.real for one in read_entries(images / "core-2.img", pb.CoreEntry)]
    assert (found.isec, found.iusec, found.vsec, found.vusec) == given
