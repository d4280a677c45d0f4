"""What checking and freeing do beside the store."""

from __future__ import annotations

import os
from pathlib import Path

from relive.checkpoint.uncompared import path_of
from relive.config import Settings
from relive.maintenance.problems import Kind
from relive.model.commit import CommitId
from relive.model.life_paths import LifePaths
from relive.operations.progress import Silent
from relive.operations.storage import GcParams, VerifyParams, gc, verify
from relive.sandbox.lazy.touched import TouchedMemory


def test_which_commits_were_compared_is_checked_and_dropped_when_a_life_without_commits_has_ended(
    tmp_path: Path,
) -> None:
    settings = Settings(home=tmp_path)
    for life in ("ended", "open"):
        (settings.capsules / "pay" / life).mkdir(parents=True)
        path_of(tmp_path, life).parent.mkdir(exist_ok=True)
        path_of(tmp_path, life).write_text("{")
        os.utime(path_of(tmp_path, life), (0, 0))
    LifePaths(settings.capsules / "pay" / "ended").closed.touch()
    gc(settings, GcParams(dry_run=True), Silent())
    problems = verify(settings, VerifyParams(), Silent()).problems
    assert [(one.kind, one.name) for one in problems] == [
        (Kind.COMPARISON, "ended"),
        (Kind.COMPARISON, "open"),
    ]
    gc(settings, GcParams(), Silent())
    assert [one.name for one in (tmp_path / "uncompared").iterdir()] == ["open"]


def test_what_is_told_of_a_dropped_commit_goes(tmp_path: Path) -> None:
    TouchedMemory(tmp_path, CommitId("a" * 64)).write({7: [1]})
    gc(Settings(home=tmp_path), GcParams(dry_run=True), Silent())
    assert len(list((tmp_path / "touched").iterdir())) == 1
    gc(Settings(home=tmp_path), GcParams(), Silent())
    assert not list((tmp_path / "touched").iterdir())
