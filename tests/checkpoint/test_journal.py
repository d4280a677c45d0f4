"""The journal of changed files: its records as bytes, and reading them while they are written and compacted."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relive.checkpoint.journal import (
    Control,
    JournalReader,
    JournalRecord,
    Parsed,
    RecordKind,
    check_version,
    encode_record,
    parse_records,
    read_journal,
)
from relive.errors import CapsuleVersionUnknown

# Any bytes but zero, as names of files are.
PATHS = st.lists(st.binary(min_size=1, max_size=12), min_size=1, max_size=4).map(
    lambda names: (
        "/" + b"/".join(name.replace(b"\0", b"_") for name in names).decode(errors="surrogateescape")
    )
)
WORDS = st.integers(0, 2**32 - 1)
RECORDS = st.builds(
    JournalRecord,
    serial=st.integers(1, 2**63),
    time_ns=st.integers(0, 2**62),
    kind=st.sampled_from(RecordKind),
    mode=st.integers(0, 0o177777),
    uid=WORDS,
    gid=WORDS,
    size=st.integers(0, 2**62),
    mtime_ns=st.integers(-(2**62), 2**62),
    path=PATHS,
    second=st.sampled_from(["", "/elsewhere", "no space left"]),
)


def record(
    serial: int, path: str = "/data/a", kind: RecordKind = RecordKind.NOTED, at: int | None = None
) -> JournalRecord:
    return JournalRecord(serial, serial if at is None else at, kind, 0o100644, 0, 0, 1, 1, path, "")


@given(st.lists(RECORDS, max_size=5), st.binary(max_size=30))
def test_records_are_read_as_they_were_written(records: list[JournalRecord], junk: bytes) -> None:
    """What is not yet whole at the end is left for the next time."""
    data = b"".join(encode_record(one) for one in records)
    assert parse_records(data + junk.replace(b"\0", b"")) == Parsed(records, len(data), 0)


@given(st.lists(RECORDS, min_size=1, max_size=3), st.data())
def test_a_cut_journal_gives_the_records_before_the_cut(
    records: list[JournalRecord], data: st.DataObject
) -> None:
    whole = b"".join(encode_record(one) for one in records)
    cut = data.draw(st.integers(0, len(whole)))
    found = parse_records(whole[:cut])
    assert found.records == records[: len(found.records)]
    assert found.size <= cut and found.damaged == 0


@given(RECORDS, st.data())
def test_a_changed_byte_is_noticed(record: JournalRecord, data: st.DataObject) -> None:
    whole = bytearray(encode_record(record))
    place = data.draw(st.integers(0, len(whole) - 1))
    whole[place] = data.draw(st.integers(0, 255).filter(lambda byte: byte != whole[place]))
    found = parse_records(bytes(whole))
    # Upper case digits of the sum are the same number; without its last zero byte it is not whole.
    assert found.records in ([], [record]) and (found.damaged or found.records or found.size < len(whole))


@given(st.binary(max_size=200))
def test_no_bytes_are_an_error(data: bytes) -> None:
    found = parse_records(data)
    assert found.size <= len(data)
    assert len(found.records) + found.damaged <= data.count(b"\0") // 2


def write(directory: Path, segment: int, *records: JournalRecord) -> None:
    with (directory / f"journal.{segment}").open("ab") as file:
        file.write(b"".join(encode_record(one) for one in records))


def test_each_record_comes_once(tmp_path: Path) -> None:
    journal = JournalReader(tmp_path)
    write(tmp_path, 0, record(1))
    assert [one.serial for one in journal.read_new()] == [1]
    write(tmp_path, 0, record(2))  # a copy that ended late, while the next epoch is written to already
    write(tmp_path, 10, record(3))
    assert [one.serial for one in journal.read_new()] == [2, 3]
    assert journal.read_new() == []


def test_all_of_a_life_are_in_the_order_of_their_times(tmp_path: Path) -> None:
    write(tmp_path, 0, record(1), record(4, at=4))
    write(tmp_path, 1, record(3, at=3))
    assert [one.serial for one in read_journal(tmp_path)] == [1, 3, 4]
    assert read_journal(tmp_path / "none") == []


def test_compacting_keeps_the_first_of_each_path_and_all_with_content(tmp_path: Path) -> None:
    journal, other = JournalReader(tmp_path), JournalReader(tmp_path)
    base = record(5, "/data/a", RecordKind.REGULAR)
    write(tmp_path, 0, record(1), record(2, "/data/gone", RecordKind.ABSENT))
    write(tmp_path, 1, record(3), record(4, "/data/b"), base)
    write(tmp_path, 2, record(6, "/data/c"))
    journal.read_new()
    other.read_new()
    journal.compact(lambda one: one.path != "/data/gone", before=2, least=1)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["journal.1", "journal.2"]
    assert [one.serial for one in read_journal(tmp_path)] == [1, 4, 5, 6]
    write(tmp_path, 2, record(7))
    assert [one.serial for one in journal.read_new()] == [7]
    assert {one.serial for one in other.read_new()} >= {7}  # another reader sees some again, and misses none


def test_a_journal_that_has_hardly_grown_is_left_alone(tmp_path: Path) -> None:
    write(tmp_path, 0, *(record(serial) for serial in range(1, 50)))
    write(tmp_path, 1, record(60))
    JournalReader(tmp_path).compact(lambda _one: True, before=2, least=1)
    assert len(list(tmp_path.iterdir())) == 2


def test_control_is_what_process_1_reads(tmp_path: Path) -> None:
    """struct control of native/init/journal.h."""
    control = Control(tmp_path)
    control.next_epoch()
    control.next_epoch()
    control.preserve_bases()
    assert struct.unpack_from("=III", (tmp_path / "control").read_bytes()) == (2, 1, 0)
    with (tmp_path / "control").open("r+b") as file:
        file.write(struct.pack("=IIIIQ", 2, 1, 2, 1, 7))
    assert (control.reached, control.lost) == (2, 7)
    assert not control.wait_until_idle(0.01)
    with (tmp_path / "control").open("r+b") as file:
        file.seek(12)
        file.write(struct.pack("=I", 0))
    assert control.wait_until_idle(0.01)
    assert Control(tmp_path).reached == 2  # as an agent finds it that takes over


def test_a_control_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        Control(tmp_path / "none")


@pytest.mark.parametrize(("version", "is_known"), [(0, True), (1, True), (2, False), (2**32 - 1, False)])
def test_what_another_version_wrote_is_not_read(tmp_path: Path, version: int, is_known: bool) -> None:
    """Of one that says nothing (0) it is known what it writes."""
    check_version(tmp_path)  # nothing is there
    Control(tmp_path)
    with (tmp_path / "control").open("r+b") as file:
        file.seek(40)
        file.write(struct.pack("=I", version))
    for read in (check_version, read_journal):
        if is_known:
            read(tmp_path)
        else:
            with pytest.raises(CapsuleVersionUnknown, match=str(version)):
                read(tmp_path)
