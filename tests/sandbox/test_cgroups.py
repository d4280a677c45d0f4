"""Limits of a branch's control groups that are set anew while it runs, on files that stand for the kernel's."""

from __future__ import annotations

from pathlib import Path

import pytest

from relive.sandbox.cgroups import Groups

VERSIONS = (
    ("memory.usage_in_bytes", ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes")),
    ("memory.usage_in_bytes", ("memory.limit_in_bytes",)),
    ("memory.current", ("memory.max",)),
)


@pytest.mark.parametrize(("used", "limits"), VERSIONS)
def test_memory_is_lowered_only_where_what_is_used_leaves_it(
    tmp_path: Path, used: str, limits: tuple[str, ...]
) -> None:
    def after(in_use: int, limit: str) -> set[str]:
        (tmp_path / used).write_text(f"{in_use}\n")
        for name in limits:
            (tmp_path / name).write_text(limit)
        Groups((tmp_path, tmp_path / "gone")).lower_memory(32)
        return {(tmp_path / name).read_text().strip() for name in limits}

    assert after(99, "132\n") == {"100"}
    assert after(100, "132\n") == {"132"}, "the kernel would refuse, or kill"
    assert after(1, "max\n") == {"max"}
