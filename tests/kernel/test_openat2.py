"""A path is opened without being led elsewhere."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from relive.kernel.openat2 import look_without_links


@pytest.fixture
def root(tmp_path: Path) -> Iterator[int]:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "file").write_text("here")
    (tmp_path / "in" / "link").symlink_to("/etc/passwd")
    (tmp_path / "way").symlink_to("/etc")
    descriptor = os.open(tmp_path, os.O_PATH | os.O_DIRECTORY)
    yield descriptor
    os.close(descriptor)


def seen(root: int, path: str) -> str:
    found = look_without_links(root, path)
    try:
        return os.readlink(f"/proc/self/fd/{found}")
    finally:
        os.close(found)


def test_what_is_there_is_found_itself(root: int, tmp_path: Path) -> None:
    """Also a symbolic link, which is not followed; a slash at the beginning leads nowhere else."""
    assert seen(root, "/in/file") == str(tmp_path / "in/file")
    assert seen(root, "in/link") == str(tmp_path / "in/link")
    assert seen(root, "/") == str(tmp_path)


@pytest.mark.parametrize(
    ("path", "kind"),
    [("/way/passwd", OSError), ("/in/none", FileNotFoundError), ("/in/file/below", NotADirectoryError)],
)
def test_nothing_is_reached_through_a_link(root: int, path: str, kind: type[OSError]) -> None:
    with pytest.raises(kind) as raised:
        look_without_links(root, path)
    assert raised.value.filename == path


def test_no_way_leads_out(root: int) -> None:
    with pytest.raises(OSError):
        look_without_links(root, "/in/../../../etc/passwd")
