"""Orders to a template of CRIU, with the real library; what it restores is in tests/real/test_template.py."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from relive.checkpoint import criu_template
from relive.checkpoint.criu import CriuTools
from relive.checkpoint.criu_template import CriuTemplate
from relive.config import load_settings
from relive.model.commit import TargetKind
from relive.operations import restoring_many
from relive.operations.restoring_many import RestoreManyParams


def _lay_images(directory: Path) -> None:
    """Of a commit without any process."""
    for name in ("pstree.img", "files.img"):
        (directory / name).write_bytes(struct.pack("<II", 0x54564319, 0))


@pytest.fixture
def template(tmp_path: Path) -> Iterator[CriuTemplate]:
    _lay_images(tmp_path)
    with CriuTemplate(CriuTools(load_settings().tools_path), tmp_path, on_host=True) as made:
        yield made


def _fork(template: CriuTemplate, group: Path) -> int:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        forked = template.fork(os.getpid(), [group], [theirs.fileno()])
        forked.kill()
        return forked.pid


def test_a_group_that_cannot_be_joined_in_time_is_told_and_the_template_goes_on(
    template: CriuTemplate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one that is frozen, which stops whoever joins it: here a file that nobody reads holds it."""
    stuck = tmp_path / "stuck"
    stuck.mkdir()
    os.mkfifo(stuck / "tasks")
    with monkeypatch.context() as brief:
        brief.setattr(criu_template, "_JOINED_WITHIN", 0.05)
        with pytest.raises(
            OSError, match=r"did not join its control groups .*stuck.* within 0\.05 s"
        ) as refused:
            _fork(template, stuck)
    assert refused.value.errno == errno.ETIMEDOUT
    assert _fork(template, tmp_path) > 0


def test_who_restores_many_is_told_why_mapped_files_are_not_shared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(_names: object) -> dict[str, int]:
        raise OSError(errno.ENODEV, "no overlay here")

    monkeypatch.setattr(criu_template, "open_host_files", refused)
    settings = load_settings()
    settings = settings.model_copy(update={"home": tmp_path, "tools": settings.tools_path})
    images = settings.branches / "b1" / "images"
    images.mkdir(parents=True)
    _lay_images(images)
    first: Any = SimpleNamespace(branch=SimpleNamespace(id="b1"))
    manifest: Any = SimpleNamespace(target=SimpleNamespace(kind=TargetKind.CAPSULE))
    told: list[str] = []
    progress: Any = SimpleNamespace(status=told.append)
    with contextlib.ExitStack() as stack:
        made = restoring_many._template(
            settings, first, manifest, RestoreManyParams(ref="c", count=2), progress, stack
        )
        assert made is not None
    (line,) = told
    assert "no overlay here" in line


def test_one_that_does_not_start_leaves_no_descriptor_open(tmp_path: Path) -> None:
    images = tmp_path / "images"
    images.mkdir()
    _lay_images(images)
    tools = tmp_path / "tools"
    tools.mkdir()
    before = os.listdir("/proc/self/fd")
    with pytest.raises(FileNotFoundError):
        CriuTemplate(CriuTools(tools), images, on_host=False)
    assert os.listdir("/proc/self/fd") == before
