"""Timers in commits on top of others: each state as a full commit of the same has it. With the real CRIU."""

from __future__ import annotations

import itertools
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from relive.checkpoint.dump import capture
from relive.checkpoint.micro_record import NotNow, TimerSetting
from relive.checkpoint.micro_timers import set_timerfd
from relive.checkpoint.target import process_target
from relive.images import criu_images_pb2 as pb
from relive.images.image_file import read_entries, read_first
from relive.model.commit import Trigger

from .test_micro_commits import PROGRAMS, TRIES, Taking, Told, kernel_says
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

    timers: list[Setting]
    are_signals_pending: bool
    is_in_handler: bool  # of SIGALRM, where it is blocked

    def check(self, images: Path) -> None:
        super().check(images)
        self.timers = timers_in(images)
        self.are_signals_pending = task_in(images).HasField("signals_s")
        self.is_in_handler = bool(task_in(images).blk_sigset >> (signal.SIGALRM - 1) & 1)

    def full(self, pid: int) -> list[Setting]:
        """What a full commit says, taken without any other."""
        target = process_target(pid)
        taken = capture(
            target, Trigger.MANUAL, settings=self.settings, store=self.store, watchdog=self._watchdog
        )
        try:
            return timers_in(taken.staging.images)
        finally:
            taken.discard()


@pytest.fixture
def taking(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Comparing]:
    found = Comparing(tmp_path / "home", monkeypatch)
    yield found
    found.close()


def task_in(images: Path) -> pb.TaskCoreEntry:
    """Of one process."""
    [process] = read_entries(images / "pstree.img", pb.PstreeEntry)
    return read_first(images / f"core-{process.pid}.img", pb.CoreEntry).tc


def timers_in(images: Path) -> list[Setting]:
    """Of all kinds; those that there are not as such that are stopped."""
    files = read_entries(images / "files.img", pb.FileEntry)
    found: list[Setting] = []
    for one in sorted((one.tfd for one in files if one.HasField("tfd")), key=lambda one: one.id):
        kind = (one.clockid, one.settime_flags, one.ticks)
        found.append((*kind, one.vsec * NS + one.vnsec, one.isec * NS + one.insec))
    task = task_in(images)
    for number, alarm in enumerate((task.timers.real, task.timers.virt, task.timers.prof)):
        left, period = alarm.vsec * NS + alarm.vusec * 1000, alarm.isec * NS + alarm.iusec * 1000
        found.append((number, 0, 0, left, period))
    for timer in sorted(task.timers.posix, key=lambda one: one.it_id):
        left, period = timer.vsec * NS + timer.vnsec, timer.isec * NS + timer.insec
        found.append((timer.it_id, 0, timer.overrun, left, period))
    return found


def in_hours(settings: list[Setting]) -> list[Setting]:
    """Hours left, begun ones counted: the rest of one goes by between two commits."""
    return [(*kind, -(-left // HOUR_NS), period) for *kind, left, period in settings]


KINDS = {"descriptors": 13, "alarms": 3, "timers": 7}
MOVE = {"descriptors": 13, "alarms": 1, "timers": 6}  # the others only with the processor's time


@pytest.mark.parametrize("kind", KINDS)
def test_each_state_of_a_timer_is_as_in_a_full_commit(
    start: Callable[[str], Told], taking: Comparing, kind: str
) -> None:
    told = start(kind)
    taking.base(told.pid)
    before = taking.timers
    taking.follow(told, "set")
    on_top = taking.timers
    if kernel_says() == "ok":
        assert not any("about to expire" in reason for reason in taking.reasons)
    assert sum(now != then for now, then in zip(on_top, before, strict=True)) == KINDS[kind]
    assert in_hours(on_top) == in_hours(taking.full(told.pid))
    taking.base(told.pid)
    taking.follow(told, "set")
    assert in_hours(taking.timers) == in_hours(on_top)


@pytest.mark.parametrize("kind", KINDS)
def test_time_goes_on_between_commits(start: Callable[[str], Told], taking: Comparing, kind: str) -> None:
    """Also where all else of the process is known to be as it was."""
    told = start(kind)
    taking.base(told.pid)
    readings = [taking.timers]
    for _ in range(3):
        taking.follow(told, "tell")
        readings.append(taking.timers)
    for earlier, later in itertools.pairwise(readings):
        moved = sum(now[3] < then[3] for now, then in zip(later, earlier, strict=True))
        assert moved >= MOVE[kind]


def test_a_timer_that_is_made_leads_to_a_full_commit(start: Callable[[str], Told], taking: Comparing) -> None:
    told = start("timers")
    taking.base(told.pid)
    told.ask("one more")
    assert not taking.commit(told.pid)
    assert any("something has changed: timers" in reason for reason in taking.reasons)


def test_an_alarm_that_comes_often_is_in_each_commit(start: Callable[[str], Told], taking: Comparing) -> None:
    """While CRIU holds it for the base its signal is pending; on top of that it is not, and there is time left."""
    told = start("alarm goes on")
    taking.base(told.pid)
    on_top = 0
    for _ in range(TRIES):
        taking.micro._refusals = 0
        if taking.commit(told.pid):
            on_top += 1
            assert taking.timers[0][3] > 0
            assert not taking.are_signals_pending
    assert on_top


def test_an_alarm_that_is_set_anew_each_time_is_never_lost(
    start: Callable[[str], Told], taking: Comparing
) -> None:
    """Once it has expired it tells nothing of itself: only its signal does, which is pending where it was not seen yet."""
    told = start("alarm again")
    taking.base(told.pid)
    on_top = 0
    for _ in range(15 * TRIES):
        taking.micro._refusals = 0
        if taking.commit(told.pid):
            on_top += 1
            assert taking.timers[0][3] > 0 or taking.is_in_handler
    assert on_top


@needs_kernel
def test_a_timer_that_goes_on_is_never_told_as_stopped_or_as_expired_twice(
    start: Callable[[str], Told], tmp_path: Path
) -> None:
    """It expires while it is looked at, and its interrupt may come late."""
    told = start("goes on")
    tracking = Tracking(told.pid, tmp_path)
    try:
        tracking.begin()
        for _ in range(200):
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
        ({"vsec": 5}, REST._replace(left=(0, 1), rests=False)),
        ({"vsec": 5}, REST._replace(ticks=1, rests=False)),
    ],
    ids=["known to rest", "runs", "has expired"],
)
def test_what_a_timer_is_set_to_is_certain(before: dict[str, int], now: TimerSetting) -> None:
    image = entry(**before)
    set_timerfd(image, now)
    assert (image.ticks, (image.vsec, image.vnsec)) == (now.ticks, now.left)


@pytest.mark.parametrize("before", [{}, {"vsec": 5}, {"ticks": 1}], ids=["was stopped", "ran", "had expired"])
def test_a_timer_that_may_be_about_to_expire_leads_to_a_full_commit(before: dict[str, int]) -> None:
    with pytest.raises(NotNow):
        set_timerfd(entry(**before), REST._replace(rests=False))
