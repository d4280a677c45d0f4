"""Directories that are named with --files are taken whole, or lie over the host's."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from relive.checkpoint.open_files import OpenFiles, opened_files
from relive.model.commit import EntryKind


@pytest.fixture
def data(tmp_path: Path) -> Path:
    made = tmp_path / "data"
    (made / "sub" / "empty").mkdir(parents=True)
    (made / "a").write_text("one")
    (made / "sub" / "b").write_text("two")
    (made / "link").symlink_to("a")
    (made / "gone").symlink_to("nowhere")
    os.mkfifo(made / "pipe")
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(made / "sock"))
    return made


def taken(files: OpenFiles, data: Path) -> dict[str, tuple[EntryKind, bool]]:
    top = str(data).lstrip("/")
    return {
        name.removeprefix(top) or "/": (entry.kind, entry.opaque)
        for name, entry in files.entries.items()
        if name.startswith(top)
    }


def test_a_directory_is_taken_whole_and_hides_what_is_put_there_later(data, tmp_path):
    files = OpenFiles(1 << 20, tmp_path / "home")
    assert files.add_path(data, tmp_path)
    found = taken(files, data)
    assert found == {
        "/": (EntryKind.DIRECTORY, True),
        "/a": (EntryKind.FILE, False),
        "/gone": (EntryKind.LINK, False),
        "/link": (EntryKind.LINK, False),
        "/pipe": (EntryKind.PIPE, False),
        "/sock": (EntryKind.SOCKET, False),
        "/sub": (EntryKind.DIRECTORY, True),
        "/sub/b": (EntryKind.FILE, False),
        "/sub/empty": (EntryKind.DIRECTORY, True),
    }
    names = list(files.entries)
    assert all(names.index(str(Path(name).parent)) < at for at, name in enumerate(names) if "/" in name)
    assert files.entries[str(data / "link").lstrip("/")].link == "a"


def test_of_which_something_is_left_out_lies_over_the_hosts(data, tmp_path):
    (data / "sub" / "long").write_bytes(b"x" * 100)
    files = OpenFiles(50, tmp_path / "home")
    assert not files.add_path(data, tmp_path)
    found = taken(files, data)
    assert (found["/"], found["/sub"]) == ((EntryKind.DIRECTORY, False), (EntryKind.DIRECTORY, False))
    assert found["/sub/empty"] == (EntryKind.DIRECTORY, True)
    assert files.left_out == [f"{data}/sub/long\tit would exceed open_file_limit"]


def test_what_lies_in_relive_s_home_is_no_file_of_the_tree(tmp_path: Path) -> None:
    """CRIU's log is open in a process while that is saved."""
    home = tmp_path / "home"
    home.mkdir()
    (tmp_path / "link").symlink_to(home)
    with (home / "criu.log").open("w"), (tmp_path / "home.log").open("w"):
        found = opened_files(os.getpid(), home, mapped=False)
        assert opened_files(os.getpid(), tmp_path / "link", mapped=False) == found
    assert str(tmp_path / "home.log") in found
    assert str(home / "criu.log") not in found
