"""Branches at one time: never more than there is memory for, and always one."""

from __future__ import annotations

import pytest

from relive.kernel.meminfo import HostMemory
from relive.operations import branch_memory
from relive.operations.bisecting import _worth_asking


class Commit:
    """As much of a manifest as is looked at: two images of pages, 10 GB in all."""

    class _Image:
        def __init__(self, name: str, size: int) -> None:
            self.name, self.size = name, size

    images = (_Image("pages-1.img", 6 << 30), _Image("pages-2.img", 4 << 30), _Image("core-1.img", 1 << 40))


@pytest.mark.parametrize(("available", "branches"), [(1, 1), (12, 1), (25, 2), (36, 3), (90, 3)])
def test_there_are_no_more_than_the_host_has_memory_for(
    monkeypatch: pytest.MonkeyPatch, available: int, branches: int
) -> None:
    monkeypatch.setattr(branch_memory, "read_meminfo", lambda: HostMemory(100 << 30, available << 30))
    assert branch_memory.branches_with_memory(Commit(), 3) == branches  # type: ignore[arg-type]


def test_probes_that_may_be_in_vain_are_for_processors_that_have_nothing_to_do() -> None:
    assert [_worth_asking(2, load) for load in (0.1, 0.9, 1.6, 17.0)] == [3, 2, 1, 1]
