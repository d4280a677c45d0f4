from __future__ import annotations

from pathlib import Path

import pytest

from relive.kernel.memory_cgroups import oom_kills


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n"),
        ("memory.events", "low 0\nhigh 0\nmax 9\noom 3\noom_kill 2\noom_group_kill 0\n"),
    ],
)
def test_kills_are_counted_in_either_version(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    assert oom_kills(tmp_path) == 2


def test_a_group_that_is_gone_or_of_another_kind_has_none(tmp_path: Path) -> None:
    assert oom_kills(tmp_path) == 0
    assert oom_kills(tmp_path / "gone") == 0
