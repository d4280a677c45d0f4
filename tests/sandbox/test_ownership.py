"""A branch that one process has ends with it: what the next command does with what is left.

Processes 1 that end with their owner are in ``real/test_debug.py`` and ``real/test_replay.py``.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from relive.config import Settings
from relive.kernel.claims import claimed
from relive.model.branch import BranchFacts, Clock
from relive.model.commit import CommitId
from relive.sandbox.branch import Branch, list_branches, sweep
from relive.sandbox.ownership import Ownership


def branch(branches: Path, name: str, *, is_owned: bool) -> Branch:
    facts = BranchFacts(
        id=name,
        commit=CommitId("0" * 64),
        name="service",
        init=2**22 + 1,  # above pid_max: nobody
        init_started=1,
        root=2**22 + 1,
        clock=Clock.RECORDED,
        created_wall_ns=1,
        restore_us=1,
        is_owned=is_owned,
    )
    made = Branch(branches / name, branches, facts)
    made.directory.mkdir(parents=True)
    made.save()
    return made


@contextlib.contextmanager
def claimed_by_somebody(made: Branch) -> Iterator[Path]:
    with claimed(made.directory):
        yield made.directory


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(home=tmp_path, tools=tmp_path)


def left(settings: Settings) -> set[str]:
    return {one.facts.id for one in list_branches(settings)}


def test_only_what_is_owned_and_has_no_owner_is_swept(settings: Settings) -> None:
    lost, had, _ = (
        branch(settings.branches, name, is_owned=name != "free") for name in ("lost", "had", "free")
    )
    had.ownership = Ownership(claimed_by_somebody(had))
    sweep(settings)
    assert left(settings) == {"had", "free"}
    assert not lost.directory.exists()
    had.stop()
    assert left(settings) == {"free"}


def test_a_kept_branch_is_let_be(settings: Settings) -> None:
    kept = branch(settings.branches, "kept", is_owned=True)
    kept.ownership = Ownership(claimed_by_somebody(kept))
    kept.outlive_caller()
    sweep(settings)
    assert left(settings) == {"kept"}


def test_a_home_without_branches_is_swept_too(settings: Settings) -> None:
    sweep(settings)
    assert not settings.branches.exists()
