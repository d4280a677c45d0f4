"""How much is kept of bodies, also of such that come in pieces."""

from __future__ import annotations

import contextlib
import hashlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from kernel.helpers import needs_root

from .conftest import INPROCESS

sys.path.insert(0, str(INPROCESS))
from relive_recorder.bodies import CountedBody, for_event
from relive_recorder.recorder import recorder
from relive_recorder.scrub import Scrubber

sys.path.remove(str(INPROCESS))


@pytest.mark.parametrize("limit", [1, 100, 5000])
def test_of_a_long_body_no_more_is_kept_than_may_be(monkeypatch: pytest.MonkeyPatch, limit: int) -> None:
    monkeypatch.setattr(recorder, "options", SimpleNamespace(inline_bytes=64 << 10, body_bytes=limit))
    monkeypatch.setattr(recorder, "scrubber", Scrubber())
    body = CountedBody()
    for _ in range(3):
        body.add(b"x" * 2000)
    fields, kept = body.for_event()
    assert kept == b"x" * min(limit, 4096)
    assert fields == {"bytes": 6000, "cut": 6000 - len(kept)}


@contextlib.contextmanager
def file_system(place: Path, size: int, free: int) -> Iterator[Path]:
    """One of so many bytes, of which about so many are free; it takes up next to nothing."""
    image, mounted = place / "image", place / "mounted"
    with image.open("wb") as file:
        file.truncate(size)
    subprocess.run(
        ["mkfs.ext4", "-q", "-m", "0", "-O", "^has_journal", "-T", "largefile4", str(image)], check=True
    )
    mounted.mkdir()
    subprocess.run(["mount", "-o", "loop", str(image), str(mounted)], check=True)
    try:
        found = os.statvfs(mounted)
        with (mounted / "filled").open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, found.f_bavail * found.f_frsize - free)
        yield mounted
    finally:
        subprocess.run(["umount", str(mounted)], check=True)


MB, GB = 1 << 20, 1 << 30


@needs_root
@pytest.mark.parametrize(
    ("size", "free", "is_whole"),
    [
        (64 * MB, 24 * MB, True),
        (64 * MB, 8 * MB, False),
        (16 * GB, GB + 64 * MB, True),  # less than a quarter of it
        (16 * GB, GB - 64 * MB, False),
    ],
)
def test_a_long_body_is_kept_where_there_is_room(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, size: int, free: int, *, is_whole: bool
) -> None:
    """GIVEN rings in a file system, WHEN a gigabyte is free or a quarter of it is, THEN a body is whole, in a file of its own."""
    body = b"x" * (1 << 20)
    with file_system(tmp_path, size, free) as rings:
        options = SimpleNamespace(inline_bytes=64 << 10, body_bytes=16 << 20, rings=str(rings))
        monkeypatch.setattr(recorder, "options", options)
        monkeypatch.setattr(recorder, "scrubber", Scrubber())
        fields, kept = for_event(body)
        if is_whole:
            assert (fields["bytes"], kept) == (len(body), b"")
            assert (rings / fields["file"]).read_bytes() == body
        else:
            assert (fields["bytes"], fields["cut"], kept) == (len(body), len(body) - 4096, body[:4096])
            assert fields["blake2b"] == hashlib.blake2b(body, digest_size=16).hexdigest()
            assert not list(rings.glob("*.body"))
