"""Timers in commits on top of others: each state as a full commit of the same has it. With the real CRIU."""

from __future__ import annotations

import itertools
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from relive.checkpoint.dump import capture
from relive.checkpoint.micro_record import NotNow, TimerSetting
from relive.checkpoint.micro_timers import set_timerfd
from relive.checkpoint.target import process_target
from relive.images import criu_images_pb2 as pb
from relive.images.image_file import read_entries
from relive.model.commit import Trigger

from .test_micro_commits import PROGRAMS, Taking, Told, kernel_says
from .test_micro_unchanged import Tracking, needs_kernel

NS = 1_000_000_000
HOUR_NS = 3600 * NS
Setting = tuple[int, int, int, int, int]  # clock, flags, ticks, what is left and period [ns]


@pytest.fixture(scope="module")
def states(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("programs") / "timer_states"
    source = PROGRAMS / "timer_states.c"
    subprocess.run(["gcc", "-O1", "-Wall", "-Wextra", "-Werror", "-o", made, source], check=True)
    return made


@pytest.fixture
def start(states: Path) -> Iterator[Callable[[str], Told]]:
    begun: list[Told] = []

    def begin(kind: str) -> Told:
        begun.append(Told(states, kind))
        return begun[-1]

    yield begin
    for one in begun:
        one.end()


class Comparing(Taking):
    """Keeps what each commit says of timers."""

    descriptors: list[Setting]

    def check(self, images: Path) -> None:
        super().check(images)
        self.descriptors = descriptors_in(images)

    def full(self, pid: int) -> list[Setting]:
        """What a full commit says, taken without any other."""
        taken = capture(
            process_target(pid),
            Trigger.MANUAL,
            settings=self.settings,
            store=self.store,
            watchdog=self._watchdog,
        )
        try:
            return descriptors_in(taken.staging.images)
        finally:
            taken.discard()


@pytest.fixture
def taking(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Comparing]:
    found = Comparing(tmp_path / "home", monkeypatch)
    yield found
    found.close()


def descriptors_in(images: Path) -> list[Setting]:
    files = read_entries(images / "files.img", pb.FileEntry)
    timers = sorted((one.tfd for one in files if one.HasField("tfd")), key=lambda one: one.id)
    return [
        (one.clockid, one.settime_flags, one.ticks, one.vsec * NS + one.vnsec, one.isec * NS + one.insec)
        for one in timers
    ]


def in_hours(settings: list[Setting]) -> list[Setting]:
    """Hours left, begun ones counted: the rest of one goes by between two commits."""
    return [(*others, -(-left // HOUR_NS), period) for *others, left, period in settings]


def test_each_state_of_a_timerfd_is_as_in_a_full_commit(
    start: Callable[[str], Told], taking: Comparing
) -> None:
    told = start("descriptors")
    taking.base(told.pid)
    before = taking.descriptors
    taking.follow(told, "set")
    on_top = taking.descriptors
    if kernel_says() == "ok":
        assert not any("about to expire" in reason for reason in taking.reasons)
    assert len(on_top) == 13
    assert all(now != then for now, then in zip(on_top, before, strict=True))
    assert in_hours(on_top) == in_hours(taking.full(told.pid))
    taking.base(told.pid)
    taking.follow(told, "set")
    assert in_hours(taking.descriptors) == in_hours(on_top)


def test_time_goes_on_between_commits(start: Callable[[str], Told], taking: Comparing) -> None:
    told = start("descriptors")
    taking.base(told.pid)
    readings = [taking.descriptors]
    for _ in range(3):
        taking.follow(told, "tell")
        readings.append(taking.descriptors)
    for earlier, later in itertools.pairwise(readings):
        assert all(now[3] < then[3] for now, then in zip(later, earlier, strict=True))


@needs_kernel
def test_a_timer_that_goes_on_is_never_told_as_stopped_or_as_expired_twice(
    start: Callable[[str], Told], tmp_path: Path
) -> None:
    """It expires while it is looked at, and its interrupt may come late."""
    told = start("goes on")
    tracking = Tracking(told.pid, tmp_path)
    try:
        tracking.begin()
        for _ in range(400):
            seen = tracking.commit().seen
            [timer] = seen.timers.values()
            is_late = any("late" in line for line in seen.lines)
            assert is_late or (timer.ticks > 0) != (timer.left > (0, 0))
    finally:
        tracking.close()


REST = TimerSetting(0, 0, (0, 0), (0, 0), rests=True)


def entry(**values: int) -> pb.TimerfdEntry:
    nothing = {"ticks": 0, "settime_flags": 0, "vsec": 0, "vnsec": 0, "isec": 0, "insec": 0}
    return pb.TimerfdEntry(id=1, flags=0, clockid=1, **nothing | values)


@pytest.mark.parametrize(
    ("before", "now"),
    [
        ({"vsec": 5}, REST),
        ({}, REST._replace(rests=False)),
        ({"vsec": 5}, REST._replace(left=(0, 1), rests=False)),
        ({"vsec": 5}, REST._replace(ticks=1, rests=False)),
    ],
    ids=["known to rest", "rested before", "runs", "has expired"],
)
def test_what_a_timer_is_set_to_is_certain(before: dict[str, int], now: TimerSetting) -> None:
    image = entry(**before)
    set_timerfd(image, now)
    assert (image.ticks, (image.vsec, image.vnsec)) == (now.ticks, now.left)


@pytest.mark.parametrize("before", [{"vsec": 5}, {"ticks": 1}], ids=["ran", "had expired"])
def test_a_timer_that_may_be_about_to_expire_leads_to_a_full_commit(before: dict[str, int]) -> None:
    with pytest.raises(NotNow):
        set_timerfd(entry(**before), REST._replace(rests=False))
