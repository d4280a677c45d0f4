"""Why no micro-commits can be taken on a host."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from relive.checkpoint import micro_hindrance as room
from relive.checkpoint.criu import CriuTools
from relive.checkpoint.micro_hindrance import micro_hindrance
from relive.config import load_settings


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
    assert micro_hindrance(tools) == "userfaultfd: Operation not permitted"
