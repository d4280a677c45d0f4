"""What a commit holds of the files of a process that was not started in a capsule."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from relive.checkpoint import watched_files as tested
from relive.checkpoint.watched_files import Reported, WatchedFiles, WatchedScanner
from relive.kernel.leases import LEASED
from relive.model.commit import EntryKind


@pytest.fixture
def top(tmp_path: Path) -> Path:
    """What the tree sees as its root, with some files."""
    made = tmp_path / "top"
    (made / "srv" / "data").mkdir(parents=True)
    (made / "srv" / "data" / "a").write_text("a")
    (made / "srv" / "data" / "b").write_text("b" * 100)
    (made / "srv" / "other").write_text("nobody's")
    return made


@pytest.fixture
def staging(tmp_path: Path) -> Path:
    made = tmp_path / "staging"
    made.mkdir()
    return made


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the kernel tells: the files that are open, and those under a lease."""
    told: dict[str, Any] = {"opened": [], "leased": frozenset()}
    monkeypatch.setattr(tested, "opened_files", lambda *_, **__: told["opened"])
    monkeypatch.setattr(tested, "leased_files", lambda: told["leased"])
    return told


def files(*paths: str, trees: tuple[str, ...] = (), named: tuple[str, ...] = (), **more: Any) -> WatchedFiles:
    followed = Reported(list(paths), list(trees), more.pop("gaps", []))
    return WatchedFiles(
        0, lambda: followed, named, more.pop("points", ("/",)), more.pop("limit", 1 << 20), Path("/home")
    )


def scanned(scanner: WatchedScanner, staging: Path, always: tuple[str, ...] = ()) -> dict[str, EntryKind]:
    return {entry.path: entry.kind for entry, _ in scanner.scan(staging, always)}


FILE, DIRECTORY, GONE = EntryKind.FILE, EntryKind.DIRECTORY, EntryKind.WHITEOUT


def test_a_changed_file_comes_with_the_directories_that_lead_there(top: Path, staging: Path, held) -> None:
    scanner = WatchedScanner(top, files=files("/srv/data/a"))
    assert scanned(scanner, staging) == {"srv": DIRECTORY, "srv/data": DIRECTORY, "srv/data/a": FILE}
    assert scanner.files.absent == [] and scanner.left_out == []


def test_what_was_deleted_is_hidden_where_its_path_ends(top: Path, staging: Path, held) -> None:
    scanner = WatchedScanner(top, files=files("/srv/gone/deep/file", "/srv/data/c"))
    assert scanned(scanner, staging) == {
        "srv": DIRECTORY,
        "srv/gone": GONE,
        "srv/data": DIRECTORY,
        "srv/data/c": GONE,
    }
    assert scanner.files.absent == ["/srv/gone/deep/file", "/srv/data/c"]


def test_where_no_files_of_the_host_are_seen_below_nothing_has_to_be_hidden(
    top: Path, staging: Path, held
) -> None:
    scanner = WatchedScanner(top, files=files("/srv/data/c"), hides=False)
    assert scanned(scanner, staging) == {"srv": DIRECTORY, "srv/data": DIRECTORY}


def test_an_open_file_that_is_gone_is_none_of_the_files(top: Path, staging: Path, held) -> None:
    held["opened"] = ["/srv/data/a", "/srv/data/gone"]
    assert scanned(WatchedScanner(top, files=files()), staging) == {
        "srv": DIRECTORY,
        "srv/data": DIRECTORY,
        "srv/data/a": FILE,
    }


@pytest.mark.parametrize("way", ["trees", "named"])
def test_of_a_whole_directory_a_branch_sees_nothing_else(top: Path, staging: Path, held, way: str) -> None:
    entries = WatchedScanner(top, files=files(**{way: ("/srv/data",)})).scan(staging)
    assert {entry.path: entry.opaque for entry, _ in entries} == {
        "srv": False,
        "srv/data": True,
        "srv/data/a": False,
        "srv/data/b": False,
    }


def test_a_file_is_held_below_the_innermost_mount_point(top: Path, staging: Path, held) -> None:
    told = files("/srv/data/a", "/srv/other", points=("/", "/srv", "/srv/data", "/srv/da"), trees=("/srv",))
    assert [told.point_of(path) for path in ("/srv/data/a", "/srv/data", "/srv/dat", "/etc")] == [
        *("/srv/data", "/srv/data", "/srv", "/"),
    ]
    below = WatchedScanner(top / "srv" / "data", files=told, point="/srv/data")
    assert scanned(below, staging) == {"a": FILE}
    around = WatchedScanner(top / "srv", files=told, point="/srv", is_first=False)
    (staging / "around").mkdir()
    assert scanned(around, staging / "around") == {"other": FILE}


def test_files_under_a_lease_and_those_beyond_the_limit_are_named(top: Path, staging: Path, held) -> None:
    facts = (top / "srv" / "data" / "a").stat()
    held["leased"] = frozenset({(facts.st_dev, facts.st_ino)})
    scanner = WatchedScanner(top, files=files("/srv/data/a", "/srv/data/b", limit=50, gaps=["x\tlost"]))
    assert scanned(scanner, staging) == {"srv": DIRECTORY, "srv/data": DIRECTORY}
    assert scanner.left_out == [
        "x\tlost",
        f"srv/data/a\t{LEASED}",
        "srv/data/b\tit would exceed open_file_limit",
    ]
    assert scanner.files.absent == []


def test_each_look_counts_anew(top: Path, staging: Path, held) -> None:
    scanner = WatchedScanner(top, files=files("/srv/data/b", limit=150))
    for _ in range(3):
        assert "srv/data/b" in scanned(scanner, staging)
    (top / "srv" / "data" / "b").unlink()
    assert scanned(scanner, staging)["srv/data/b"] is GONE
    assert scanner.known == {}, "its content, which the store may have freed, belongs to no entry"


def test_what_cannot_be_read_is_named_and_a_full_disk_is_an_error(
    top: Path, staging: Path, held, monkeypatch: pytest.MonkeyPatch
) -> None:
    scanner = WatchedScanner(top, files=files("/srv/data/a"))
    fails = errno.EIO

    def describe(self: WatchedScanner, child: Any, path: str, *_: Any) -> Any:
        raise OSError(fails, os.strerror(fails))

    monkeypatch.setattr(WatchedScanner, "_describe", describe)
    assert scanned(scanner, staging) == {}
    assert scanner.left_out == ["srv\tit cannot be read: Input/output error"]
    fails = errno.ENOSPC
    with pytest.raises(OSError, match="No space"):
        scanner.scan(staging)
