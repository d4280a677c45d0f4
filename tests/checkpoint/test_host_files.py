"""Files of the host, seen through an overlay that is mounted nowhere."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from relive.checkpoint import host_files
from relive.checkpoint.host_files import open_host_files
from relive.kernel.mounts import read_mounts

FILE = "/etc/passwd"  # on the file system of the root everywhere


@pytest.fixture
def opened() -> Iterator[dict[str, int]]:
    """To be filled by a test, and closed."""
    found: dict[str, int] = {}
    yield found
    for descriptor in found.values():
        os.close(descriptor)


def test_a_file_has_its_name_and_bytes_on_no_mount_of_the_host(opened: dict[str, int]) -> None:
    opened.update(open_host_files([FILE]))
    mounted = Path(f"/proc/self/fdinfo/{opened[FILE]}").read_text().split("mnt_id:")[1].split()[0]
    assert os.readlink(f"/proc/self/fd/{opened[FILE]}") == FILE
    assert os.pread(opened[FILE], 1 << 20, 0) == Path(FILE).read_bytes()
    assert os.fstat(opened[FILE]).st_ino == os.stat(FILE).st_ino
    assert int(mounted) not in {one.identifier for one in read_mounts()}
    assert not [one for one in read_mounts() if one.point == "/run/seen"]


def test_a_file_that_has_just_changed_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_files, "_SETTLED_NS", 1 << 62)
    assert open_host_files([FILE]) == {}


def test_only_regular_files_are_opened(
    opened: dict[str, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not a link, not what a link is on the way to, no FIFO, nothing outside: names of a commit are anybody's."""
    monkeypatch.setattr(host_files, "_SETTLED_NS", 0)
    file, link, fifo = (tmp_path / name for name in ("file", "link", "fifo"))
    file.write_bytes(b"bytes")
    link.symlink_to("file")
    (tmp_path / "way").symlink_to(".")
    os.mkfifo(fifo)
    names = [file, link, tmp_path / "way" / "file", fifo, tmp_path, tmp_path / "gone", f"..{file}"]
    root = os.open("/", os.O_PATH | os.O_DIRECTORY)
    try:
        found = {str(name): host_files._open_settled(root, str(name)) for name in names}
    finally:
        os.close(root)
    opened.update({name: descriptor for name, descriptor in found.items() if descriptor is not None})
    assert list(opened) == [str(file)]
