"""What a replay makes of runs that were done before; the others cannot be restored here, since the store is empty."""

from __future__ import annotations

import asyncio
from contextlib import closing
from pathlib import Path

from relive.config import Settings
from relive.model.commit import CommitId
from relive.model.outcome import End, Outcome, Run, Verdict, VerdictKind
from relive.replay.plan import ReplayPlan
from relive.replay.replay import replay
from relive.replay.replay_input import ReplayInput
from relive.replay.replay_options import ReplayOptions
from relive.store import Store
from store.builders import make_manifest


def run(number: int) -> Run:
    verdict = Verdict(kind=VerdictKind.REPRODUCED)
    return Run(number=number, verdict=verdict, outcome=None, forwarded=0, restore_us=1, seconds=0.5)


def test_only_runs_that_are_missing_are_made(tmp_path: Path):
    outcome = Outcome(end=End.NOTHING)
    commit = CommitId("0" * 64)
    case = ReplayInput(
        "pay", 1, commit, make_manifest(), ReplayPlan([], None, 0), outcome, earlier={}, limit=1.0
    )
    done: list[int] = []
    made: list[Run] = []
    settings = Settings(home=tmp_path)
    with closing(Store(settings.store)) as store:
        replaying = replay(
            settings,
            store,
            case,
            ReplayOptions(times=4),
            done.append,
            had=[run(4), run(2)],
            ended=made.append,
        )
        result = asyncio.run(replaying)
    assert done == [2, 3, 4]
    assert [one.number for one in made] == [1, 3]
    assert {one.verdict.kind for one in made} == {VerdictKind.FAILED_TO_RESTORE}
    assert result.runs == [made[0], run(2), made[1], run(4)]
    assert result.reproduced == 2
