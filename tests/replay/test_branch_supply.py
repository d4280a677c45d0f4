"""When a branch of a replay serves another run; the branches, what watches them and putting them back are played here."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from relive.config import Settings
from relive.model.branch import Clock
from relive.model.commit import CommitId
from relive.model.outcome import End, Outcome
from relive.replay import branch_supply
from relive.replay.answers import Calls
from relive.replay.branch_supply import BranchNeed, BranchSupply, ReplayBranch, lasting_branches
from relive.replay.plan import ReplayPlan
from relive.replay.replay_input import ReplayInput
from relive.replay.stubs.lifecycle import StubLifecycle
from relive.sandbox.rewinder import CannotRewind
from relive.store import Store
from store.builders import make_manifest

CASE = ReplayInput(
    "pay",
    1,
    CommitId("0" * 64),
    make_manifest(),
    ReplayPlan([], None, 0),
    Outcome(end=End.NOTHING),
    earlier={},
    limit=1.0,
)
NEED = BranchNeed(CASE, Clock.RECORDED, Calls.RECORDED, {})


class PlayedBranch:
    """A branch without processes."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.peers: dict[int, int] = {}
        directory.mkdir(exist_ok=True)
        self.log("stderr").touch()
        self.facts = SimpleNamespace(init=1, root=1 << 30, restore_us=5)
        self.groups = SimpleNamespace(oom_kills=lambda: 0)
        self.is_alive = True
        self.wait_status: int | None = None

    def log(self, stream: str) -> Path:
        return self.directory / stream

    def stop(self) -> None:
        self.is_alive = False


class PlayedNetwork:
    def seal(self) -> Any:
        return SimpleNamespace(is_intact=True)

    def begin_anew(self, ends: Callable[[], None]) -> None:
        ends()

    def close(self) -> None:
        pass


@dataclass
class Host:
    """What was made and put back on it; ``refusals`` are given one after the other to who puts back."""

    directory: Path
    made: list[tuple[PlayedBranch, bool]] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)

    def restore(self, _settings: Any, _store: Any, _commit: Any, request: Any) -> PlayedBranch:
        branch = PlayedBranch(self.directory)
        self.made.append((branch, request.rewinds))
        return branch

    def put_back(self, _directory: Path, *, while_held: Callable[[], None]) -> None:
        if self.refusals:
            raise CannotRewind(self.refusals.pop(0))
        while_held()

    @property
    def alive(self) -> int:
        return sum(branch.is_alive for branch, _ in self.made)


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    made = Host(tmp_path)
    monkeypatch.setattr(branch_supply, "restore", made.restore)
    monkeypatch.setattr(branch_supply, "put_back", made.put_back)
    monkeypatch.setattr(branch_supply.Network, "of_branch", lambda *_: PlayedNetwork())
    return made


def lived(
    host: Host, *needs: BranchNeed, is_lasting: bool = True, is_whole: bool = True
) -> list[ReplayBranch]:
    """A run for each need, one after the other; what they were given, as it was then."""
    given = []

    async def live() -> None:
        supply = BranchSupply(Settings(home=host.directory), None, is_lasting=is_lasting)  # type: ignore[arg-type]
        for left, need in enumerate(reversed(needs)):
            is_last = left == len(needs) - 1
            used = await supply.take(need, StubLifecycle(None), None, is_last=is_last)
            given.append(replace(used))
            await supply.give_back(used, is_last=is_last, is_whole=is_whole)
        await supply.close()

    asyncio.run(live())
    assert host.alive == 0
    return given


def reasons(given: list[ReplayBranch]) -> list[str | None]:
    return ["put back" if used.is_put_back else used.anew_because for used in given]


def test_a_branch_serves_run_after_run(host: Host) -> None:
    assert reasons(lived(host, NEED, NEED, NEED)) == [None, "put back", "put back"]
    assert [rewinds for _, rewinds in host.made] == [True]


def test_what_differs_is_restored_anew_and_after_the_second_time_no_branch_is_prepared_for_it(
    host: Host,
) -> None:
    host.refusals = ["a thread has ended", "a file was closed"]
    told = reasons(lived(host, *[NEED] * 5))
    given_up = "given up, since the second time a file was closed"
    assert told == [None, "a thread has ended", "a file was closed", given_up, given_up]
    assert [rewinds for _, rewinds in host.made] == [True, True, False, False, False]


@pytest.mark.parametrize(
    ("other", "why"),
    [
        (replace(NEED, anew=True), "as asked"),
        (replace(NEED, lazily=True), "its memory comes while it runs"),
        (replace(NEED, is_measured=True), "what it takes is measured from its beginning"),
        (replace(NEED, seconds=3.0), "its monotonic clock would be 3.0 s late, and may be 1.0 s"),
    ],
)
def test_no_branch_is_prepared_for_what_cannot_be(host: Host, other: BranchNeed, why: str) -> None:
    assert reasons(lived(host, other, other)) == [None, why]
    assert [rewinds for _, rewinds in host.made] == [False, False]


@pytest.mark.parametrize(
    "other",
    [
        replace(NEED, policy={"*": "pass"}),
        replace(NEED, clock=Clock.NOW),
        replace(NEED, calls=Calls.REAL),
        replace(NEED, case=replace(CASE, commit=CommitId("1" * 64))),
        replace(NEED, case=replace(CASE, plan=ReplayPlan([], None, 0, answered=frozenset({80})))),
        replace(NEED, case=replace(CASE, stubs=object())),  # type: ignore[arg-type]
    ],
)
def test_a_run_that_needs_another_branch_does_not_get_this_one(host: Host, other: BranchNeed) -> None:
    assert not any(used.is_put_back for used in lived(host, NEED, other, NEED))
    assert len(host.made) == 3


def test_a_run_begins_no_later_than_a_slow_restore_would_make_it(host: Host, monkeypatch: Any) -> None:
    now = [0.0]
    monkeypatch.setattr(branch_supply.time, "monotonic", lambda: now[0])
    supply = BranchSupply(Settings(home=host.directory), None, is_lasting=True)  # type: ignore[arg-type]
    told = []

    async def live() -> None:
        for _ in range(4):
            used = await supply.take(NEED, StubLifecycle(None), None, is_last=False)
            told.append("put back" if used.is_put_back else used.anew_because)
            now[0] += 0.6
            await supply.give_back(used, is_last=False, is_whole=True)
        await supply.close()

    asyncio.run(live())
    late = "its monotonic clock would be 1.2 s late, and may be 1.0 s"
    assert told == [None, "put back", late, "put back"]


def test_the_last_run_and_one_that_was_broken_off_leave_none(host: Host) -> None:
    assert reasons(lived(host, NEED, is_lasting=False)) == [None]
    assert [rewinds for _, rewinds in host.made] == [False]
    assert not any(used.is_put_back for used in lived(host, NEED, NEED, is_whole=False))


def test_what_nobody_took_again_ends_with_a_lasting_supply(host: Host) -> None:
    store: Store = None  # type: ignore[assignment]
    with lasting_branches(Settings(home=host.directory), store) as supply:

        async def live() -> None:
            used = await supply.take(NEED, StubLifecycle(None), None, is_last=True)
            await supply.give_back(used, is_last=True, is_whole=True)

        asyncio.run(live())
        assert host.alive == 1
    assert host.alive == 0
