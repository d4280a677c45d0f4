from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from relive.agent.capsule.memory_cgroup import MemoryGroup
from relive.agent.failures.memory_pressure import Levels, Pressure

MIB = 1 << 20


@pytest.mark.parametrize(
    ("limit", "commit"), [(96 * MIB, 0.7), (200 * MIB, 0.84), (4096 * MIB, 0.85)], ids=str
)
def test_there_is_room_for_what_is_taken_until_the_commit(limit: int, commit: float) -> None:
    levels = Levels.of(limit)
    assert levels.commit == pytest.approx(limit * commit, rel=0.01)
    assert 0 <= levels.near < levels.again < levels.commit < limit


def fill(group: Path, used: int, files: int = 0) -> None:
    (group / "memory.usage_in_bytes").write_text(str(used))
    (group / "memory.stat").write_text(f"cache 1\ntotal_active_file {files}\ntotal_inactive_file 0\n")


def test_a_commit_is_due_once_for_each_rise_and_files_do_not_count(tmp_path: Path) -> None:
    (tmp_path / "memory.limit_in_bytes").write_text(str(100 * MIB))

    async def looks() -> list[bool]:
        pressure, seen = Pressure(MemoryGroup(tmp_path, 1)), []
        for used, files in ((10, 0), (90, 60), (90, 0), (95, 0), (68, 0), (90, 0), (30, 0), (90, 0)):
            fill(tmp_path, used * MIB, files * MIB)
            seen.append(pressure.is_due())
        pressure.close()
        return seen

    assert asyncio.run(looks()) == [False, False, True, False, False, False, False, True]


def test_without_a_limit_nothing_is_ever_due(tmp_path: Path) -> None:
    (tmp_path / "memory.max").write_text("max\n")
    (tmp_path / "memory.current").write_text("1")
    assert not Pressure(MemoryGroup(tmp_path, 2)).is_due()
