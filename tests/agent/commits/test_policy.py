"""A policy's commits, by a committer that is played: no error ends them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from relive.agent.commits import policy as room
from relive.agent.commits.activity import Activity, ActivitySample
from relive.agent.commits.committer import Committer
from relive.agent.commits.pace import CommitPace, Footprint
from relive.agent.commits.policy import PolicyCommits
from relive.agent.commits.protection import Protection
from relive.agent.commits.service_cost import ServiceCost
from relive.errors import DiskFull, ProcessGone
from relive.model.commit import Trigger
from relive.model.commit_policy import Policy
from relive.model.life_paths import LifePaths
from relive.model.pace import PaceState


def no_cost() -> ServiceCost:
    return ServiceCost(dict, lambda: 0.0)


class Over(BaseException):
    """The play is over."""


class Played(Committer):
    """Takes commits, or fails as it is told to."""

    def __init__(self, becomes: Iterable[Exception | None], protection: Protection) -> None:
        unused: Any = None
        dumper: Any = SimpleNamespace(advance=None)  # nothing else of it is asked for here
        super().__init__(dumper, LifePaths(Path("/")), "pay", unused, protection, unused)
        self._becomes = iter(becomes)
        self.asked: list[Trigger] = []
        self.contended = False
        self.ready_after: list[tuple[bool, int]] = []

    @property
    def is_contended(self) -> bool:
        return self.contended

    def is_ready(self, ready: bool) -> None:
        self.ready_after.append((ready, len(self.asked)))

    async def capture(self, trigger: Trigger, stopped: Any = None, name: str | None = None) -> Any:
        del stopped, name
        try:
            error = next(self._becomes)
        except StopIteration:
            raise Over from None
        self.asked.append(trigger)
        if error is not None:
            raise error
        return len(self.asked)

    async def store(self, taken: Any, written: Any = None) -> Any:
        self._protection.works("commits")
        return SimpleNamespace(id="c", durable_us=1, new_bytes=1)


def play(
    monkeypatch: pytest.MonkeyPatch,
    policy: Policy,
    *becomes: Exception | None,
    looks: Iterable[ActivitySample] = (),
) -> tuple[list[Trigger], list[float], Protection]:
    """Which commits were asked for, the pauses between them, and what is told at the end."""
    protection, pauses, now = Protection(), [], [0.0]

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        now[0] += seconds

    committer = Played(becomes, protection)
    pace = CommitPace(policy, lambda: Footprint(1, 1_000_000), no_cost, lambda: now[0])
    seen = iter(looks)

    def look() -> ActivitySample:
        try:
            return next(seen)
        except StopIteration:
            raise Over from None

    commits = PolicyCommits(
        policy, committer, pace, Path("/dev/null/pace"), lambda: True, lambda: Activity(look)
    )
    monkeypatch.setattr(room.asyncio, "sleep", sleep)
    with contextlib.suppress(Over):
        asyncio.run(commits.run())
    # Past its start the service is after the first try to commit it, and not before.
    assert committer.ready_after[:2] == [(False, 0), (True, int(policy.at_start))]
    return committer.asked, pauses, protection


@pytest.mark.parametrize(("contended", "budget"), [(False, None), (True, None), (False, 1 << 60)])
def test_a_clock_quicker_than_the_store_takes_the_next_commits_while_that_is_waited_for(
    contended: bool, budget: int | None
) -> None:
    """Where none is free, or each counts, only while the disk is waited for. Of those not stored it is told later, once."""
    policy, now = Policy(at_start=True, seconds=0.01, pause_share=None, budget=budget), [0.0]
    gate = asyncio.Event()
    waited_for: list[bool] = []
    steps: list[str] = []

    class Slow(Played):
        async def capture(self, trigger: Trigger, stopped: Any = None, name: str | None = None) -> Any:
            number = await super().capture(trigger)
            steps.append(f"taken {number}")
            await asyncio.to_thread(lambda: None)  # as it is taken in a thread
            if number == 4:
                waited_for.append(not gate.is_set())
                gate.set()
            return number

        async def store(self, taken: Any, written: Any = None) -> Any:
            now[0] += 1.0
            await asyncio.to_thread(lambda: None)
            steps.append(f"written {taken}")
            written()
            if taken in (2, 3):  # together
                await gate.wait()
                raise DiskFull("no space left")
            return await super().store(taken)

        def failed(self, error: Exception, longest: float = 0.0) -> float:
            failures.append(error)
            return super().failed(error, longest)

    failures: list[Exception] = []
    committer = Slow([None] * 6, Protection())
    committer.contended = contended
    pace = CommitPace(policy, lambda: Footprint(1, 1_000_000), no_cost, lambda: now[0])
    # By its own clock it need not wait: 1 s has gone by.
    pace.wait_left = lambda: 0.0  # type: ignore[method-assign]
    commits = PolicyCommits(
        policy, committer, pace, Path("/dev/null/pace"), lambda: True, lambda: Activity(lambda: None)
    )  # type: ignore[arg-type,return-value]
    with pytest.raises(Over):
        asyncio.run(commits.run())
    assert waited_for == [True]
    assert [type(one) for one in failures] == [DiskFull]
    assert committer.asked == [Trigger.START] + [Trigger.TIMER] * 5
    assert (steps.index("written 2") < steps.index("taken 3")) == (contended or budget is not None)


@pytest.mark.parametrize("why", ["unchanged", "held"])
def test_a_commit_that_was_not_stored_is_told_of_and_taken_again_though_no_other_is_due(
    monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    """A service that does nothing more has no next commit which would tell."""
    policy, now = Policy(at_start=True, seconds=0.01, pause_share=None, on_change=why == "unchanged"), [0.0]
    failures: list[Exception] = []

    class Full(Played):
        async def store(self, taken: Any, written: Any = None) -> Any:
            now[0] += 1.0  # a slow disk
            await asyncio.to_thread(lambda: None)  # the loop goes on meanwhile
            if taken == 2:
                raise DiskFull("no space left")
            return await super().store(taken)

        def failed(self, error: Exception, longest: float = 0.0) -> float:
            failures.append(error)
            return super().failed(error, longest)

    async def sleep(seconds: float) -> None:
        now[0] += seconds
        if len(sleeps) > 20:
            raise Over
        sleeps.append(seconds)

    sleeps: list[float] = []
    committer = Full([None] * 3, Protection())
    pace = CommitPace(policy, lambda: Footprint(1, 1_000_000), no_cost, lambda: now[0])

    def is_held(
        _pace: CommitPace,
    ) -> bool:  # the pause of the third would be too long, until it is told of the second
        return why == "held" and len(committer.asked) == 2 and not failures

    monkeypatch.setattr(CommitPace, "is_held", property(is_held))
    monkeypatch.setattr(room.asyncio, "sleep", sleep)
    changes: Any = SimpleNamespace(committed=lambda: None, has_changed=lambda _look: len(committer.asked) < 2)
    commits = PolicyCommits(
        policy, committer, pace, Path("/dev/null/pace"), lambda: True, lambda: changes, lambda: now[0]
    )
    with pytest.raises(Over):
        asyncio.run(commits.run())
    assert [type(one) for one in failures] == [DiskFull]
    assert len(committer.asked) == 3


UNFORESEEN = FileNotFoundError(2, "No such file or directory", "stats-dump")


def test_after_an_error_that_nobody_foresaw_the_clock_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, pauses, protection = play(
        monkeypatch, Policy(at_start=True, seconds=5), None, UNFORESEEN, UNFORESEEN, None, None
    )
    assert asked == [Trigger.START] + [Trigger.TIMER] * 4
    assert pauses == [5, 1, 2, 5, 5]
    assert protection.as_json() == []


def test_while_it_fails_it_is_told_and_tried_less_and_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    full = DiskFull("no space left", remedy="make room")
    asked, pauses, protection = play(monkeypatch, Policy(at_start=True, seconds=1), None, *[full] * 9)
    assert len(asked) == 10
    assert pauses == [1, 1, 2, 4, 8, 16, 32, 60, 60, 60]
    assert [(one["part"], one["code"], one["times"]) for one in protection.as_json()] == [
        ("commits", "disk-full", 9)
    ]


def test_the_only_commit_that_is_asked_for_is_tried_until_it_is_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked, pauses, _ = play(monkeypatch, Policy(at_start=True), ProcessGone("gone"), UNFORESEEN, None)
    assert asked == [Trigger.START] * 3
    assert pauses == [1, 2]


def test_where_commits_follow_changes_none_is_taken_of_a_service_that_does_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    thread = (7, 7)
    idle, busy, after, recorded = (
        ActivitySample({thread: 0}, 1),
        ActivitySample({thread: 3_000_000}, 1),
        ActivitySample({thread: 9_000_000}, 1),  # the commit itself has used some
        ActivitySample({thread: 9_000_000}, 2),
    )
    looks = [idle, idle, idle, idle, busy, after, after, after, recorded]
    asked, pauses, _ = play(
        monkeypatch, Policy(at_start=True, seconds=1, on_change=True), *[None] * 9, looks=looks
    )
    assert asked == [Trigger.START] + [Trigger.TIMER] * 2
    assert pauses == [1] * 6


def test_a_quick_clock_writes_down_its_pace_now_and_then_and_a_pause_above_the_limit_at_once(
    tmp_path: Path,
) -> None:
    policy, now, memory = (
        Policy(at_start=True, seconds=0.01, pause_share=None, pause_limit=0.05),
        [0.0],
        [1_000_000],
    )
    pace = CommitPace(policy, lambda: Footprint(1, memory[0]), no_cost, lambda: now[0])
    pace.note(pause_us=1000)
    written = tmp_path / "pace.json"
    commits = PolicyCommits(
        policy,
        Played([], Protection()),
        pace,
        written,
        lambda: True,
        lambda: Activity(lambda: None),  # type: ignore[arg-type,return-value]
        lambda: now[0],
    )
    texts = set()
    for turn in range(100):
        now[0], memory[0] = turn * 0.01, memory[0] + 10_000  # so that each state is another
        assert not commits._publish_state()
        texts.add(written.read_text())
    assert len(texts) == 2  # at first, and after half a second
    memory[0] *= 100
    assert commits._publish_state()
    assert PaceState.model_validate_json(written.read_text()).is_held
