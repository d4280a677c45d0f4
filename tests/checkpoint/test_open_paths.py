"""What a process has open, and how."""

from __future__ import annotations

import mmap
import os
from pathlib import Path

from relive.checkpoint.open_paths import open_paths, shared_writable_paths, writable_paths


def test_how_a_file_was_opened_is_told(tmp_path: Path) -> None:
    me, read, written = os.getpid(), tmp_path / "read", tmp_path / "written"
    read.write_text("read")
    with read.open() as _one, written.open("w") as _other:
        assert {str(read), str(written)} <= open_paths(me)
        assert str(written) in writable_paths([me])
        assert str(read) not in writable_paths([me])
    assert str(written) not in writable_paths([me])


def test_what_is_written_through_a_mapping_is_told(tmp_path: Path) -> None:
    path, ring = tmp_path / "mapped with blanks", tmp_path / "private"
    for one in (path, ring):
        one.write_bytes(b"x" * 4096)
    with (
        path.open("r+b") as file,
        mmap.mmap(file.fileno(), 4096),
        ring.open("r+b") as other,
        mmap.mmap(other.fileno(), 4096, access=mmap.ACCESS_COPY),
    ):
        found = shared_writable_paths([os.getpid()])
    assert str(path) in found
    assert str(ring) not in found
