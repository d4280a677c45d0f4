"""``benchmarks/_resuming.py``: a measurement that was killed goes on, and what it left is cleaned up."""

from __future__ import annotations

import fcntl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def resuming(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import _resuming

    yield _resuming
    del sys.modules["_resuming"]


def test_a_row_is_there_in_the_next_run_that_asks_for_the_same(resuming: Any, tmp_path: Path) -> None:
    path = tmp_path / "rows"
    resuming.Kept(path, {"replays": 40}, "service").add({"service": "a", "word": "reproduced"})
    assert resuming.Kept(path, {"replays": 40}, "service").rows["a"]["word"] == "reproduced"
    assert resuming.Kept(path, {"replays": 3}, "service").rows == {}


def test_a_line_that_was_cut_is_dropped_and_the_next_row_begins_a_line(resuming: Any, tmp_path: Path) -> None:
    path = tmp_path / "rows"
    kept = resuming.Kept(path, {}, "service")
    kept.add({"service": "a"})
    kept.add({"service": "b"})
    path.write_bytes(path.read_bytes()[:-9])
    again = resuming.Kept(path, {}, "service")
    assert list(again.rows) == ["a"]
    again.add({"service": "c"})
    assert list(resuming.Kept(path, {}, "service").rows) == ["a", "c"]


def test_of_two_rows_of_one_name_the_last_counts(resuming: Any, tmp_path: Path) -> None:
    path = tmp_path / "rows"
    kept = resuming.Kept(path, {}, "service")
    kept.add({"service": "a", "word": "diverged"})
    kept.add({"service": "a", "word": "reproduced"})
    assert resuming.Kept(path, {}, "service").rows == {"a": {"service": "a", "word": "reproduced"}}


def test_a_place_is_stopped_and_gone_when_its_block_fails(resuming: Any, tmp_path: Path) -> None:
    stopped: list[Path] = []

    def work() -> None:
        with resuming.workplace(tmp_path, "x-", stopped.append) as place:
            (place / "home").mkdir()
            raise KeyError

    with pytest.raises(KeyError):
        work()
    assert [place.name[:2] for place in stopped] == ["x-"]
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_run_left_is_stopped_and_what_goes_on_is_not(resuming: Any, tmp_path: Path) -> None:
    stopped: list[Path] = []
    (tmp_path / "x-dead").mkdir()
    (tmp_path / "x-dead" / "lock").touch()
    (tmp_path / "x-alive").mkdir()
    with (tmp_path / "x-alive" / "lock").open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with resuming.workplace(tmp_path, "x-", stopped.append):
            assert stopped == [tmp_path / "x-dead"]
            assert not (tmp_path / "x-dead").exists()
        assert (tmp_path / "x-alive").exists()


def test_what_cannot_be_stopped_keeps_its_directory_and_is_told(
    resuming: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def stop(place: Path) -> None:
        raise subprocess.CalledProcessError(6, ["stop", str(place)])

    with resuming.workplace(tmp_path, "x-", stop) as place:
        pass
    assert place.exists()
    assert str(place) in capsys.readouterr().err
