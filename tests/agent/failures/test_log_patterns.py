"""Lines that stand for a failure are found in a capsule's output, each once, as they come."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from relive.agent.failures.log_patterns import LogLines
from relive.model.incident import FailureKind, Sighting


@pytest.fixture
def logs(tmp_path: Path) -> list[Path]:
    paths = [tmp_path / "stdout.log", tmp_path / "stderr.log"]
    for path in paths:
        path.write_text("ERROR early\n")
    return paths


@pytest.mark.parametrize(("is_new", "early"), [(True, 2), (False, 0)])
def test_what_was_written_before_counts_for_a_service_that_was_just_started(
    logs: list[Path], is_new: bool, early: int
) -> None:
    seen: list[Sighting] = []
    lines = LogLines(logs, ["ERROR"], seen.append, is_new=is_new)
    with contextlib.closing(lines):
        lines.poll()
        lines.poll()
    assert len(seen) == early


def test_a_line_is_seen_once_and_its_place_is_told(logs: list[Path]) -> None:
    seen: list[Sighting] = []
    lines = LogLines(logs, ["Exception in thread", "ERROR"], seen.append, is_new=False)
    with contextlib.closing(lines), logs[1].open("a") as file:
        file.write("well\nException in thread")
        file.flush()
        lines.poll()
        assert seen == []  # not whole yet
        file.write(' "pool-1" java.lang.IllegalStateException\n')
        file.flush()
        lines.poll()
        lines.poll()
    (one,) = seen
    assert one.kind is FailureKind.LOG and "IllegalStateException" in one.summary
    assert one.log_begin == len("ERROR early\nwell\n")


def test_a_line_is_one_failure_whatever_patterns_find_it(logs: list[Path]) -> None:
    seen: list[Sighting] = []
    lines = LogLines(logs, ["FATAL", "panic"], seen.append, is_new=False)
    with contextlib.closing(lines), logs[1].open("a") as file:
        file.write("panic: FATAL\n")
        file.flush()
        lines.poll()
    assert [one.fingerprint for one in seen] == ["log FATAL"]
