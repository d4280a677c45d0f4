"""Why no micro-commits can be taken on a host."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from relive.checkpoint import micro_hindrance as room
from relive.checkpoint.criu import CriuTools
from relive.checkpoint.micro_hindrance import micro_hindrance
from relive.config import load_settings
from support.call_filter import PAGEMAP_SCAN, USERFAULTFD, Refused, under_filter


@pytest.fixture
def tools() -> CriuTools:
    return CriuTools(load_settings().tools_path)


def test_nothing_is_in_their_way_here(tools: CriuTools) -> None:
    assert micro_hindrance(tools) is None


def test_without_the_tracker_it_says_so(tmp_path: Path) -> None:
    assert "relive-micro" in str(micro_hindrance(CriuTools(tmp_path)))


def test_an_older_kernel_is_named(tools: CriuTools, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "notes_writes", lambda: False)
    assert "Linux 6.7" in str(micro_hindrance(tools))


def test_a_host_that_forbids_it_is_named(tools: CriuTools, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> bool:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(room, "notes_writes", refuse)
    found = micro_hindrance(tools)
    assert found is not None and found.cause == "the kernel refuses userfaultfd: Operation not permitted"


@pytest.mark.parametrize(
    ("refused", "number", "said"),
    [
        (USERFAULTFD, errno.ENOSYS, "the kernel refuses userfaultfd: Function not implemented"),
        (USERFAULTFD, errno.EPERM, "the kernel refuses userfaultfd: Operation not permitted"),
        (PAGEMAP_SCAN, errno.EINVAL, "the kernel refuses PAGEMAP_SCAN: Invalid argument"),
    ],
    ids=["no userfaultfd", "forbidden", "no scan"],
)
def test_what_a_filter_of_a_container_refuses_is_named(refused: Refused, number: int, said: str) -> None:
    """By the kernel itself, in a process under such a filter."""
    program = (
        "from relive.checkpoint.micro_hindrance import micro_hindrance;"
        "from relive.checkpoint.criu import CriuTools; from relive.config import load_settings;"
        "print(micro_hindrance(CriuTools(load_settings().tools_path)).cause)"
    )
    told = subprocess.run(
        [*under_filter(refused, number), sys.executable, "-c", program],
        check=True,
        capture_output=True,
        text=True,
    )
    assert told.stdout.strip() == said
