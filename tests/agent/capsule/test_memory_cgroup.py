"""A capsule's memory cgroup, on directories that look like the kernel's."""

from __future__ import annotations

from pathlib import Path

import pytest

from relive.agent.capsule import memory_cgroup
from relive.agent.capsule.memory_cgroup import MemoryGroup
from relive.errors import HostIncapable


@pytest.fixture
def nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A host without a memory controller."""
    monkeypatch.setattr(memory_cgroup, "_V1", tmp_path / "v1")
    monkeypatch.setattr(memory_cgroup, "_V2", (tmp_path / "v2",))
    return tmp_path


@pytest.fixture
def v1(nothing: Path) -> Path:
    (nothing / "v1").mkdir()
    (nothing / "v1" / "memory.usage_in_bytes").touch()
    return nothing / "v1"


@pytest.fixture
def v2(nothing: Path) -> Path:
    (nothing / "v2").mkdir()
    (nothing / "v2" / "cgroup.controllers").write_text("cpu memory io\n")
    return nothing / "v2"


def test_without_a_controller_and_a_limit_there_is_no_group(nothing):
    assert MemoryGroup.make("pay-1", None) is None


def test_a_limit_without_a_controller_is_refused(nothing):
    with pytest.raises(HostIncapable, match="memory limit"):
        MemoryGroup.make("pay-1", 1 << 20)


def test_a_limit_is_set_in_version_1(v1):
    group = MemoryGroup.make("pay-1", 1 << 20)
    assert group == MemoryGroup(v1 / "relive" / "pay-1", 1)
    assert (v1 / "relive/pay-1/memory.limit_in_bytes").read_text() == "1048576"


def test_a_limit_is_set_in_version_2_without_swap(v2):
    group = MemoryGroup.make("pay-1", 1 << 20)
    assert group == MemoryGroup(v2 / "relive" / "pay-1", 2)
    assert (v2 / "relive/pay-1/memory.max").read_text() == "1048576"
    assert (v2 / "relive/pay-1/memory.swap.max").read_text() == "0"
    assert (v2 / "cgroup.subtree_control").read_text() == "+memory"


def test_a_version_2_without_memory_is_no_controller(v2):
    (v2 / "cgroup.controllers").write_text("cpu io\n")
    assert MemoryGroup.make("pay-1", None) is None


def test_making_a_group_again_finds_it(v2):
    assert MemoryGroup.make("pay-1", None) == MemoryGroup.make("pay-1", None)


@pytest.mark.parametrize(
    ("name", "text", "version"),
    [
        ("memory.events", "low 0\nhigh 0\nmax 5\noom 3\noom_kill 2\noom_group_kill 7\n", 2),
        ("memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n", 1),
    ],
)
def test_kills_are_counted(tmp_path, name, text, version):
    (tmp_path / name).write_text(text)
    assert MemoryGroup(tmp_path, version).kills() == 2


def test_a_group_that_is_gone_has_no_kills_and_is_removed_again_without_error(tmp_path):
    group = MemoryGroup(tmp_path / "gone", 2)
    assert group.kills() == 0
    group.remove()
