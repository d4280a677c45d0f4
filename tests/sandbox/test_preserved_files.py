"""What changed just before a branch was told of is laid into the branch, and nowhere else."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path

import pytest

from relive.checkpoint.journal import JournalRecord, RecordKind
from relive.errors import RestoreUnsupported
from relive.sandbox.changed_files import Change
from relive.sandbox.preserved_files import preserve_files


@dataclass
class Life:
    files: Path


@dataclass
class Later:
    """A life that has ended: nobody listens for branches."""

    living: Life
    changes: dict[str, Change]

    def read(self) -> dict[str, Change]:
        return self.changes


def change(path: str, kind: RecordKind, base: Path | None = None, mode: int = 0o100640) -> Change:
    facts = base.stat() if base is not None else None
    size = facts.st_size if facts is not None else 0
    return Change(
        JournalRecord(1, 1, kind, mode, os.getuid(), os.getgid(), size, 1_000_000_000, path, "target"), base
    )


@pytest.fixture
def roots(tmp_path: Path) -> tuple[Path, Path]:
    """The mounted root of a branch, and the upper layer of its overlay (here one that nothing is copied to)."""
    mounted, upper = tmp_path / "mounted", tmp_path / "upper"
    for directory in (mounted, upper):
        (directory / "data" / "d").mkdir(parents=True)
    return mounted, upper


def keep(roots: tuple[Path, Path], *changes: Change) -> None:
    mounted, upper = roots
    later = Later(Life(mounted.parent / "files"), {one.record.path: one for one in changes})
    line = preserve_files(later, {}, [("/", upper)], lambda path: mounted / path.lstrip("/"))  # type: ignore[arg-type]
    assert line is None


def test_what_was_there_comes_back_and_the_directory_keeps_its_time(
    roots: tuple[Path, Path], tmp_path: Path
) -> None:
    directory, base = roots[0] / "data", tmp_path / "base"
    base.write_text("as it was")
    (directory / "f").write_text("changed")
    (directory / "l").mkdir()
    (directory / "l" / "in").touch()
    os.utime(directory, ns=(5, 5))
    keep(
        roots,
        change("/data/f", RecordKind.REGULAR, base),
        change("/data/l", RecordKind.LINK, mode=stat.S_IFLNK | 0o777),
        change("/data/g", RecordKind.REGULAR, base),
    )
    assert (directory / "f").read_text() == (directory / "g").read_text() == "as it was"
    assert stat.S_IMODE((directory / "f").stat().st_mode) == 0o640
    assert os.readlink(directory / "l") == "target"
    assert directory.stat().st_mtime_ns == 5


def test_what_was_not_there_is_hidden(roots: tuple[Path, Path]) -> None:
    mounted, upper = roots
    (mounted / "data" / "new").touch()
    os.utime(mounted / "data", ns=(5, 5))
    keep(roots, change("/data/new", RecordKind.ABSENT))
    assert not (mounted / "data" / "new").exists()
    assert stat.S_ISCHR((upper / "data" / "new").lstat().st_mode)
    assert (upper / "data").stat().st_mtime_ns == 5


@pytest.mark.parametrize("kind", [RecordKind.REGULAR, RecordKind.ABSENT])
def test_a_link_that_a_service_has_put_in_the_way_leads_nowhere(
    roots: tuple[Path, Path], tmp_path: Path, kind: RecordKind
) -> None:
    """Neither as the last directory nor above it: what it leads to is not the branch's."""
    mounted, _ = roots
    outside, base = tmp_path / "outside", tmp_path / "base"
    (outside / "d").mkdir(parents=True)
    base.write_text("hostile")
    for path in (outside / "f", outside / "d" / "f"):
        path.write_text("of the host")
    os.utime(outside, ns=(5, 5))
    (mounted / "data" / "d").rmdir()
    (mounted / "data" / "d").symlink_to(outside)
    keep(roots, *(change(path, kind, base) for path in ("/data/d/f", "/data/d/d/f", "/data/d/d")))
    assert (outside / "f").read_text() == (outside / "d" / "f").read_text() == "of the host"
    assert sorted(path.name for path in outside.iterdir()) == ["d", "f"]
    assert outside.stat().st_mtime_ns == 5


def test_a_link_in_its_own_place_is_replaced(roots: tuple[Path, Path], tmp_path: Path) -> None:
    outside, base = tmp_path / "outside", tmp_path / "base"
    outside.write_text("of the host")
    base.write_text("as it was")
    (roots[0] / "data" / "f").symlink_to(outside)
    keep(roots, change("/data/f", RecordKind.REGULAR, base))
    assert (roots[0] / "data" / "f").read_text() == "as it was"
    assert not (roots[0] / "data" / "f").is_symlink() and outside.read_text() == "of the host"


def test_more_file_systems_than_process_1_can_look_after_are_refused(roots: tuple[Path, Path]) -> None:
    mounted, upper = roots
    later = Later(Life(mounted.parent / "files"), {})
    points = [(f"/mount/{number}", upper) for number in range(127)]
    with pytest.raises(RestoreUnsupported, match="127 file systems"):
        preserve_files(later, {}, points, mounted.joinpath)  # type: ignore[arg-type]
