"""What a branch gets of files that were changed after its commit."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from relive.checkpoint.journal import JournalRecord, RecordKind
from relive.model.commit import EntryKind, FileEntry, Layer, LayerKind
from relive.sandbox.changed_files import Change, CommittedPaths, lay_changes, plan_changes
from store.builders import make_manifest

FILE = 0o100640


def record(serial: int, path: str, kind: RecordKind, *, mode: int = FILE, second: str = "") -> JournalRecord:
    return JournalRecord(serial, serial, kind, mode, 12, 34, len("base 1"), 1_000_000_000, path, second)


def held(*entries: FileEntry, left_out: list[str] | None = None) -> CommittedPaths:
    layer = Layer(point="/", kind=LayerKind.OVERLAY, entries=list(entries), left_out=left_out or [])
    return CommittedPaths(make_manifest(layers=[layer]))


def planned(holds: CommittedPaths, bases: Path, *records: JournalRecord) -> dict[str, RecordKind]:
    changes, missing = plan_changes(holds, [(bases, records)])
    assert missing == []
    return {path: change.record.kind for path, change in changes.items()}


@pytest.fixture
def bases(tmp_path: Path) -> Path:
    for serial in range(1, 9):
        (tmp_path / str(serial)).write_text(f"base {serial}")
    return tmp_path


def test_the_earliest_counts(bases: Path) -> None:
    """A file that was changed, deleted and made again comes back as it was before the first of these."""
    changes, _ = plan_changes(
        held(),
        [
            (bases, [record(1, "/data/a", RecordKind.REGULAR), record(2, "/data/a", RecordKind.ABSENT)]),
            (bases / "later life", [record(3, "/data/a", RecordKind.REGULAR)]),
        ],
    )
    assert changes["/data/a"] == Change(record(1, "/data/a", RecordKind.REGULAR), bases / "1")


def test_what_the_commit_holds_is_not_looked_for(bases: Path) -> None:
    holds = held(
        FileEntry(path="data", kind=EntryKind.DIRECTORY),
        FileEntry(path="data/held", kind=EntryKind.FILE, object="0" * 64),
        FileEntry(path="data/deleted", kind=EntryKind.WHITEOUT),
        FileEntry(path="whole", kind=EntryKind.DIRECTORY, opaque=True),
    )
    records = [
        record(1, "/data/held", RecordKind.REGULAR),
        record(2, "/data/deleted/below", RecordKind.ABSENT),
        record(3, "/whole/deep/er", RecordKind.ABSENT),
        record(4, "/data/other", RecordKind.REGULAR),
    ]
    assert planned(holds, bases, *records) == {"/data/other": RecordKind.REGULAR}


def test_a_mount_point_is_never_hidden(bases: Path) -> None:
    """No layer holds it, so a record that it was changed again would say that it had not been there."""
    layers = [Layer(point=point, kind=LayerKind.OVERLAY, entries=[]) for point in ("/", "/data")]
    holds = CommittedPaths(make_manifest(layers=layers))
    records = [record(1, "/data", RecordKind.AGAIN, mode=0o40755), record(2, "/data/new", RecordKind.ABSENT)]
    assert planned(holds, bases, *records) == {"/data/new": RecordKind.ABSENT}


def test_nothing_is_laid_below_what_was_not_there(bases: Path) -> None:
    """A directory that was made after the commit, and what was then made in it and changed."""
    records = [record(1, "/data/new", RecordKind.ABSENT), record(2, "/data/new/file", RecordKind.REGULAR)]
    assert planned(held(), bases, *records) == {"/data/new": RecordKind.ABSENT}


def test_a_directory_that_was_moved_is_there_with_all_it_held(bases: Path) -> None:
    records = [
        record(1, "/data/old", RecordKind.DIRECTORY, mode=0o40755),
        record(2, "/data/old/file", RecordKind.REGULAR),
        record(3, "/data/new", RecordKind.MOVED),
    ]
    assert list(planned(held(), bases, *records)) == ["/data/new", "/data/old", "/data/old/file"]


def test_what_is_lost_is_told(bases: Path) -> None:
    gone = record(1, "/data/large", RecordKind.GONE, second="it is too large")
    freed = record(99, "/data/freed", RecordKind.REGULAR)
    unknown = record(2, "/data/unknown", RecordKind.NOTED)
    changes, missing = plan_changes(held(left_out=["data/left\tno space"]), [(bases, [gone, freed, unknown])])
    assert changes == {}
    assert {(one.path, one.reason) for one in missing} == {
        ("/data/left", "no space"),
        ("/data/large", "it is too large"),
        ("/data/freed", "it was not kept"),
        ("/data/unknown", "it was not kept"),
    }


def test_all_is_laid_with_owner_mode_and_times(bases: Path, tmp_path: Path) -> None:
    host = tmp_path / "host"
    (host / "untouched").mkdir(parents=True)
    (host / "untouched").chmod(0o711)
    records = [
        record(1, f"{host}/dir", RecordKind.DIRECTORY, mode=0o40750),
        record(2, f"{host}/dir/file", RecordKind.REGULAR),
        record(3, f"{host}/link", RecordKind.LINK, mode=0o120777, second="elsewhere"),
        record(4, f"{host}/none", RecordKind.ABSENT, mode=0),
        record(5, f"{host}/pipe", RecordKind.OTHER, mode=stat.S_IFIFO | 0o600),
        record(6, f"{host}/untouched/file", RecordKind.REGULAR),
        record(7, "/dev/shm/one", RecordKind.REGULAR),
    ]
    changes, _ = plan_changes(held(), [(bases, records)])
    (tmp_path / "later").mkdir()
    trees = lay_changes(changes, ["/", str(host), "/dev/shm"], tmp_path / "later")
    assert set(trees) == {str(host), "/dev/shm"}
    top = trees[str(host)]
    facts = (top / "dir" / "file").stat()
    assert (facts.st_uid, facts.st_gid, facts.st_mode, facts.st_mtime_ns) == (12, 34, FILE, 1_000_000_000)
    assert (top / "dir" / "file").read_text() == "base 2"
    assert (top / "dir").stat().st_mtime_ns == 1_000_000_000
    assert (top / "link").readlink() == Path("elsewhere")
    assert stat.S_ISCHR((top / "none").stat().st_mode) and (top / "none").stat().st_rdev == 0
    assert stat.S_ISFIFO((top / "pipe").stat().st_mode)
    assert stat.S_IMODE((top / "untouched").stat().st_mode) == 0o711  # like the host's
    assert os.listdir(trees["/dev/shm"]) == ["one"]
