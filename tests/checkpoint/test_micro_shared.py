"""Memory that processes share, in commits on top of others, compared page for page with what lies in it. With the real CRIU."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from .test_micro_commits import PROGRAMS, Taking, Told
from .test_micro_trees import TakingTrees


@pytest.fixture
def taking(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Taking]:
    found = TakingTrees(tmp_path / "home", monkeypatch)
    yield found
    found.close()


@pytest.fixture
def segments() -> Iterator[Told]:
    found = Told("unshare", "--ipc", sys.executable, PROGRAMS / "shared_segments.py")
    yield found
    found.end()


def test_a_system_v_segment_that_two_processes_write_is_followed(segments: Told, taking: Taking) -> None:
    """Its number may be 0, and it may end within a page."""
    taking.base(segments.pid)
    for _ in range(3):
        taking.follow(segments, "write")
    assert int(segments.ask("write")) >= 8


@pytest.mark.parametrize(
    ("word", "reason"),
    [
        ("another", "something has changed: segment"),
        ("nobody's", "something has changed: segment"),
        ("leave", "something has changed: segment"),
        ("remove", "something has changed: segment"),
        ("semaphore", "System V semaphores"),
    ],
)
def test_what_is_not_followed_of_system_v_objects_leads_to_a_full_commit(
    segments: Told, taking: Taking, word: str, reason: str
) -> None:
    """And the commit that is taken instead holds all as it is."""
    taking.base(segments.pid)
    taking.reasons.clear()
    segments.ask("write")
    segments.ask(word)
    assert not taking.commit(segments.pid)
    assert any(reason in said for said in taking.reasons)
    assert segments.ask("nothing") == "2"


def test_a_segment_that_no_process_has_attached_allows_none(segments: Told, taking: Taking) -> None:
    """It cannot be copied; this is said."""
    segments.ask("nobody's")
    assert not taking.commit(segments.pid)
    assert "no process has System V segment 1 attached" in str(taking.micro.reason)


def test_a_segment_behind_many_others_is_seen_as_well(segments: Told, taking: Taking) -> None:
    segments.ask("many")
    taking.base(segments.pid)
    taking.follow(segments, "write")
    segments.ask("nobody's")
    taking.reasons.clear()
    assert not taking.commit(segments.pid)
    assert any("something has changed: segment" in said for said in taking.reasons)
    assert "no process has System V segment 41 attached" in str(taking.micro.reason)


def test_more_shared_memory_than_is_copied_in_a_pause_leads_to_a_full_commit(
    segments: Told, taking: Taking
) -> None:
    segments.ask("much")
    taking.base(segments.pid)
    assert not taking.commit(segments.pid)
    assert taking.micro.reason == "it has more shared memory than is copied at a time"
