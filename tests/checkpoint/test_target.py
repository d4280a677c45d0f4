"""Which files of a living process belong to its commit."""

from __future__ import annotations

import mmap
import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from relive.checkpoint.open_paths import open_paths, shared_writable_paths


@pytest.fixture
def put_there() -> Iterator[Path]:
    """A file where Relive puts the recorder's rings."""
    directory = Path("/run/relive/rings")
    missing = [one for one in (directory, directory.parent) if not one.exists()]
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{uuid.uuid4().hex}.ring"
    path.write_bytes(bytes(4096))
    try:
        yield path
    finally:
        path.unlink()
        for one in missing:
            one.rmdir()


@pytest.mark.skipif(os.geteuid() != 0, reason="makes a file below /run")
def test_a_ring_of_the_recorder_is_no_file_of_the_service(put_there, tmp_path):
    own = tmp_path / "own"
    own.write_bytes(bytes(4096))
    with put_there.open("r+b") as ring, own.open("r+b") as file:
        with mmap.mmap(ring.fileno(), 4096), mmap.mmap(file.fileno(), 4096):
            shared = shared_writable_paths([os.getpid()])
        opened = open_paths(os.getpid())
    assert {str(own)} <= shared and {str(own)} <= opened
    assert str(put_there) not in shared | opened
