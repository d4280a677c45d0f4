"""What a commit holds of files that the journal tells of. The journal is written here; the directory is real."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from relive.checkpoint.file_layers import CapturedFile
from relive.checkpoint.journal import JournalRecord, RecordKind, encode_record
from relive.checkpoint.tracked_files import FollowedFiles
from relive.images import criu_images_pb2 as pb
from relive.model.advance import Advance
from relive.model.capsule import DataChoice
from relive.model.commit import EntryKind, FileEntry
from relive.store.small_files import FilePart
from support.waiting import eventually

Held = dict[str, FileEntry]


class Life:
    """A service below ``view`` that touches what the test says."""

    def __init__(self, place: Path, root: int) -> None:
        self.journal, self.view, self.staging = place / "files", place / "view", place / "staging"
        for directory in (self.journal, self.view / "data", self.staging):
            directory.mkdir(parents=True)
        self._root, self._serial = root, 0
        self.files = self.begin()

    def begin(self, **options: object) -> FollowedFiles:
        settings = {"points": lambda: ["/"], "memory_points": ["/run"], "largest": 1 << 20, **options}
        return FollowedFiles(self.journal, self.view, self._root, **settings)  # type: ignore[arg-type]

    def tell(self, path: str, kind: RecordKind = RecordKind.NOTED) -> Path:
        """Process 1 has noted a path; where it lies."""
        self._serial += 1
        record = JournalRecord(self._serial, self._serial, kind, 0o100644, 0, 0, 0, 0, path, "")
        with (self.journal / "journal.0").open("ab") as file:
            file.write(encode_record(record))
        return self.view / path.lstrip("/")

    def write(self, path: str, text: str) -> None:
        place = self.tell(path, RecordKind.NOTED if self._there(path) else RecordKind.ABSENT)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)

    def _there(self, path: str) -> bool:
        return os.path.lexists(self.view / path.lstrip("/"))

    def commit(
        self, between: Callable[[], object] = lambda: None, files: list[pb.FileEntry] | None = None
    ) -> Held:
        staging = self.staging / str(len(list(self.staging.iterdir())))
        staging.mkdir()
        self.files.copy_changed(staging, Advance())
        between()
        self.files.look_frozen()
        return {
            f"{source.point.rstrip('/')}/{entry.path}": entry
            for source, entries in self.files.complete(files or [])
            for entry, _ in entries
        }

    def contents(self) -> dict[str, str]:
        """Of the last commit, as it was staged."""
        return {
            path: staged(known).decode()
            for path, known in self.files._contents.items()
            if known.copy is not None
        }


def staged(known: CapturedFile) -> bytes:
    """What was copied."""
    assert known.copy is not None
    part = known.part or FilePart(0, known.copy.stat().st_size)
    return known.copy.read_bytes()[part.begin : part.begin + part.size]


@pytest.fixture(scope="module")
def root() -> Iterator[int]:
    with subprocess.Popen(["sleep", "1000"]) as process:
        yield process.pid
        process.kill()


@pytest.fixture
def life(tmp_path: Path, root: int) -> Life:
    return Life(tmp_path, root)


def test_each_commit_holds_what_was_touched_before_it(life: Life) -> None:
    (life.view / "data" / "untouched").write_text("the host's")
    life.write("/data/a", "one")
    assert list(life.commit()) == ["/data", "/data/a"]
    life.write("/data/b", "two")
    held = life.commit()
    assert [path for path, entry in held.items() if entry.kind is EntryKind.FILE] == ["/data/a", "/data/b"]
    assert life.contents() == {"/data/a": "one", "/data/b": "two"}


def test_what_changes_between_the_looks_is_in_the_commit_as_it_is_then(life: Life) -> None:
    life.write("/data/a", "before")

    def between() -> None:
        life.write("/data/a", "frozen")
        life.write("/data/b", "new")

    life.commit(between)
    assert life.contents() == {"/data/a": "frozen", "/data/b": "new"}


def test_what_has_come_and_gone_is_forgotten_and_what_was_there_is_hidden(life: Life) -> None:
    (life.view / "data" / "old").write_text("the host's")
    life.tell("/data/old").unlink()
    life.write("/data/journal", "temporary")
    (life.view / "data" / "journal").unlink()
    held = life.commit()
    assert held["/data/old"].kind is EntryKind.WHITEOUT
    assert "/data/journal" not in held


def test_a_file_that_is_open_for_writing_is_looked_at_again(life: Life) -> None:
    """Nothing tells of a write to a descriptor that was opened long ago."""
    life.write("/data/log", "one")
    reg = pb.RegFileEntry(id=1, flags=os.O_WRONLY, pos=0, name="/data/log")
    opened = [pb.FileEntry(type=1, id=1, reg=reg)]
    life.commit(files=opened)
    (life.view / "data" / "log").write_text("longer")
    life.commit(files=opened)
    assert life.contents()["/data/log"] == "longer"


def test_what_nobody_told_of_is_said_to_be_missing_and_then_held(life: Life) -> None:
    (life.view / "data" / "sent").write_text("by a descriptor from elsewhere")
    reg = pb.RegFileEntry(id=1, flags=os.O_RDWR, pos=0, name="/data/sent")
    opened = [pb.FileEntry(type=1, id=1, reg=reg)]
    assert "/data/sent" not in life.commit(files=opened)
    assert [one.split("\t")[0] for one in life.files.left_out("/")] == ["data/sent"]
    assert "/data/sent" in life.commit(files=opened)
    assert life.files.left_out("/") == []


def test_a_directory_that_was_moved_here_is_held_whole(life: Life) -> None:
    (life.view / "data" / "new" / "deep").mkdir(parents=True)
    (life.view / "data" / "new" / "deep" / "file").write_text("moved")
    life.tell("/data/old")
    life.tell("/data/new", RecordKind.MOVED)
    held = life.commit()
    assert held["/data/old"].kind is EntryKind.WHITEOUT
    assert held["/data/new/deep/file"].kind is EntryKind.FILE


def test_what_lay_below_a_directory_goes_with_it(life: Life) -> None:
    life.tell("/data/dir", RecordKind.ABSENT).mkdir()
    life.write("/data/dir/file", "one")
    assert "/data/dir/file" in life.commit()
    (life.view / "data" / "dir").rename(life.view / "data" / "away")
    life.tell("/data/dir")
    held = life.commit()
    assert not [path for path in held if path.startswith("/data/dir")]


def test_a_link_in_the_place_of_a_directory_leads_nowhere(life: Life) -> None:
    life.write("/data/dir/shadow", "own")
    life.commit()
    (life.view / "data" / "dir" / "shadow").unlink()
    (life.view / "data" / "dir").rmdir()
    life.tell("/data/dir").symlink_to("/etc")
    life.tell("/data/dir/shadow")
    held = life.commit()
    assert held["/data/dir"].link == "/etc"
    assert "/data/dir/shadow" not in held


def test_what_is_too_large_is_left_out_and_said(life: Life) -> None:
    life.write("/data/large", "x" * (2 << 20))
    assert "/data/large" not in life.commit()
    ((path, _, reason),) = [one.partition("\t") for one in life.files.left_out("/")]
    assert path == "data/large" and "commit_file_limit" in reason


def test_holes_stay_holes(life: Life) -> None:
    """A file of 1 GB that holds 4 KiB is not too large."""
    place = life.tell("/data/sparse", RecordKind.ABSENT)
    with place.open("wb") as file:
        file.truncate(1 << 30)
        file.seek(1 << 29)
        file.write(b"data")
    assert life.commit()["/data/sparse"].size == 1 << 30
    known = life.files._contents["/data/sparse"]
    assert known.copy is not None and known.copy.stat().st_blocks * 512 < 1 << 20


def test_data_can_be_held_whole_or_not_at_all(life: Life) -> None:
    for name in ("whole", "none"):
        (life.view / "data" / name).mkdir()
        (life.view / "data" / name / "file").write_text(name)
    life.files = life.begin(
        data={Path("/data/whole"): DataChoice.COPY, Path("/data/none"): DataChoice.EXCLUDE}
    )
    life.tell("/data/none/file")
    held = life.commit()
    assert held["/data/whole"].opaque and held["/data/whole/file"].kind is EntryKind.FILE
    assert not [path for path in held if path.startswith("/data/none")]


def test_an_agent_that_takes_over_holds_the_same(life: Life) -> None:
    life.write("/data/a", "one")
    life.commit()
    life.write("/data/b", "two")
    life.files = life.begin()
    assert {"/data/a", "/data/b"} <= life.commit().keys()


def test_a_copy_that_was_lost_with_a_commit_is_made_anew(life: Life) -> None:
    life.write("/data/a", "one")
    life.commit()
    known = life.files._contents["/data/a"]
    assert known.copy is not None
    known.copy.unlink()
    life.files.forget_lost_copies()
    life.commit()
    assert life.contents() == {"/data/a": "one"}


def test_modes_owners_and_attributes_are_held(life: Life) -> None:
    place = life.tell("/data/a", RecordKind.ABSENT)
    place.write_text("x")
    place.chmod(0o4750)
    os.chown(place, 12, 34)
    place.chmod(0o4750)
    os.setxattr(place, "user.colour", b"red")
    entry = life.commit()["/data/a"]
    assert (entry.mode, entry.uid, entry.gid) == (0o4750, 12, 34)
    assert entry.attributes == {"user.colour": b"red".hex()}


def test_before_a_pause_it_is_known_what_has_to_be_so_still(life: Life) -> None:
    def look(before: Callable[[], object] = lambda: None) -> bytes | None:
        staging = life.staging / str(len(list(life.staging.iterdir())))
        staging.mkdir()
        life.files.copy_changed(staging, Advance())
        before()
        expected = life.files.expect()
        return expected.encode() if expected is not None else None

    life.write("/data/a", "one")
    life.tell("/data/gone", RecordKind.ABSENT)
    later = time.time() + 1000
    os.utime(life.view / "data" / "a", (later, later))
    assert look() is None  # it may be written again with the same times
    os.utime(life.view / "data" / "a", (0, 0))
    told = eventually(look, "a file that has not changed for a moment")
    facts = (life.view / "data" / "a").stat()
    assert f" {facts.st_mtime_ns} {facts.st_ctime_ns} {life.view}/data/a\0" in told.decode()
    assert f"a {life.view}/data/gone\0" in told.decode()
    assert look(lambda: life.tell("/data/b")) is None
    assert look() is not None
    journal = life.journal / "journal.0"
    assert look(lambda: journal.write_bytes(journal.read_bytes() + b"begun")) is None  # a record is under way
