"""CRIU image files: written as they were read, and nothing but ObjectCorrupt for what is none."""

from __future__ import annotations

import contextlib
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relive.errors import ObjectCorrupt
from relive.images import criu_images_pb2 as pb
from relive.images.image_file import followed_entries, image_like, read_entries, read_first, write_entries

MAGIC = struct.pack("<II", 0x54564319, 0x50273030)  # of pstree.img
SERVICE_MAGIC = struct.pack("<II", 0x55105940, 0x57093306)  # of stats-dump


def message(body: bytes) -> bytes:
    return struct.pack("<I", len(body)) + body


def process(pid: int) -> pb.PstreeEntry:
    return pb.PstreeEntry(pid=pid, ppid=0, pgid=pid, sid=pid, threads=[pid, pid + 1])


@pytest.fixture
def image(tmp_path: Path) -> Path:
    path = tmp_path / "pstree.img"
    path.write_bytes(
        MAGIC + message(process(1).SerializeToString()) + message(process(7).SerializeToString())
    )
    return path


def scratch(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> Path:
    path = tmp_path_factory.getbasetemp() / "any.img"
    path.write_bytes(data)
    return path


def test_all_messages_are_read_in_order(image):
    assert [entry.pid for entry in read_entries(image, pb.PstreeEntry)] == [1, 7]


def test_an_image_may_be_empty(tmp_path):
    (tmp_path / "x").write_bytes(MAGIC)
    assert read_entries(tmp_path / "x", pb.PstreeEntry) == []


def test_service_files_have_a_magic_of_their_own(tmp_path):
    (tmp_path / "stats-dump").write_bytes(SERVICE_MAGIC + message(pb.StatsEntry().SerializeToString()))
    assert len(read_entries(tmp_path / "stats-dump", pb.StatsEntry)) == 1


def test_what_is_written_is_read_again_under_the_same_magic(image):
    write_entries(image, [process(3)])
    assert [entry.pid for entry in read_entries(image, pb.PstreeEntry)] == [3]
    assert image.read_bytes()[:8] == MAGIC


def test_one_is_made_after_another_with_bytes_behind_its_message() -> None:
    whole = image_like(MAGIC + b"whatever it held", [pb.PipeDataEntry(pipe_id=4, bytes=3)]) + b"abc"
    assert whole.startswith(MAGIC)
    [(entry, behind)] = followed_entries("pipes-data.img", whole, pb.PipeDataEntry, lambda one: one.bytes)
    assert (entry.pipe_id, behind) == (4, b"abc")


def test_fields_that_relive_does_not_know_are_kept(image):
    """CRIU's newer versions add some, and its restore needs them."""
    unknown = b"\xfa\x7f\x03new"  # field 2047, three bytes
    body = process(5).SerializeToString() + unknown
    image.write_bytes(MAGIC + message(body))
    entries = read_entries(image, pb.PstreeEntry)
    entries[0].pid = 6
    write_entries(image, entries)
    assert unknown in image.read_bytes()
    assert read_entries(image, pb.PstreeEntry)[0].pid == 6


def test_writing_does_not_change_what_a_hard_link_shares(image, tmp_path):
    """The other name may be an object of the store."""
    other = tmp_path / "object"
    other.hardlink_to(image)
    before = other.read_bytes()
    write_entries(image, [process(9)])
    assert other.read_bytes() == before


def test_reading_and_writing_back_changes_no_byte(image):
    before = image.read_bytes()
    write_entries(image, read_entries(image, pb.PstreeEntry))
    assert image.read_bytes() == before


def test_the_first_message_is_read_whatever_follows(tmp_path):
    (tmp_path / "x").write_bytes(
        MAGIC + message(process(4).SerializeToString()) + b"payload that is no message"
    )
    assert read_first(tmp_path / "x", pb.PstreeEntry).pid == 4


def test_an_image_without_a_first_message_is_damaged(tmp_path):
    (tmp_path / "x").write_bytes(MAGIC)
    with pytest.raises(ObjectCorrupt):
        read_first(tmp_path / "x", pb.PstreeEntry)


def test_an_image_that_is_not_there_is_told_apart_from_a_damaged_one(tmp_path):
    with pytest.raises(FileNotFoundError):
        read_entries(tmp_path / "none.img", pb.PstreeEntry)


@pytest.mark.parametrize("data", [b"", b"\x19", MAGIC[:7], b"\0" * 8, b"PK\3\4" * 4])
def test_what_has_not_crius_magic_is_no_image(tmp_path, data):
    (tmp_path / "x").write_bytes(data)
    with pytest.raises(ObjectCorrupt, match="x is damaged"):
        read_entries(tmp_path / "x", pb.PstreeEntry)


KINDS = [pb.PstreeEntry, pb.CoreEntry, pb.FileEntry, pb.TcpStreamEntry, pb.StatsEntry]


@given(kind=st.sampled_from(KINDS), data=st.binary(max_size=60), framed=st.booleans())
def test_junk_gives_messages_or_object_corrupt(tmp_path_factory, kind, data, framed):
    path = scratch(tmp_path_factory, MAGIC + (message(data) if framed else data))
    for read in (read_entries, read_first):
        with contextlib.suppress(ObjectCorrupt):
            read(path, kind)


@given(cut=st.integers(0, 10_000))
def test_a_cut_image_is_damaged_or_ends_between_messages(tmp_path_factory, cut):
    whole = MAGIC + b"".join(message(process(pid).SerializeToString()) for pid in (1, 2, 3))
    path = scratch(tmp_path_factory, whole[: cut % len(whole)])
    try:
        entries = read_entries(path, pb.PstreeEntry)
    except ObjectCorrupt:
        return
    assert [entry.pid for entry in entries] == [1, 2, 3][: len(entries)]


@given(at=st.integers(0, 10_000), bit=st.integers(0, 7))
def test_a_flipped_bit_gives_messages_or_object_corrupt(tmp_path_factory, at, bit):
    core = pb.CoreEntry(mtype=1)
    core.tc.task_state, core.tc.exit_code, core.tc.comm = 1, 0, "pay"
    whole = bytearray(MAGIC + message(core.SerializeToString()))
    whole[at % len(whole)] ^= 1 << bit
    path = scratch(tmp_path_factory, bytes(whole))
    try:
        entries = read_entries(path, pb.CoreEntry)
    except ObjectCorrupt:
        return
    write_entries(path, entries)


def test_a_message_without_its_required_fields_is_damaged(tmp_path):
    """Protobuf lets it pass, and would fail when it is written back."""
    (tmp_path / "x").write_bytes(MAGIC + message(b""))
    with pytest.raises(ObjectCorrupt, match="lacks a required field"):
        read_entries(tmp_path / "x", pb.PstreeEntry)
