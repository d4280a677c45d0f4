"""A ring is read as it is written, when it was lapped, when its writer was killed, and when it is hostile."""

from __future__ import annotations

import os
import struct
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from inprocess.conftest import INPROCESS
from relive.errors import RecordingCorrupt
from relive.recording.rings import RingMode, RingReader, make_branch_ring

sys.path.insert(0, str(INPROCESS))
import contextlib

from relive_recorder.ring import HEADER_BYTES, Ring

sys.path.remove(str(INPROCESS))


def meta(seq: int, kind: str = "note", fields: str = "{}") -> bytes:
    return f'[{seq},1,2,"{kind}",3,4,5,{fields}]'.encode()


@pytest.fixture
def ring(tmp_path):
    ring = Ring(str(tmp_path / "1-a.ring"), 1 << 16, RingMode.RECORD)
    yield ring
    ring.forget()


def test_what_is_written_is_taken_once(ring):
    ring.write(1, meta(1), b"data")
    reader = RingReader(Path(ring.path))
    (event,) = reader.read_new()
    assert (event.seq, event.data, event.request) == (1, b"data", 5)
    assert event.fields == {"own_seq": 1, "thread": 3, "lane": 4}
    assert reader.read_new() == []
    reader.close()


def test_the_next_reader_goes_on_where_the_last_one_was(ring):
    ring.write(1, meta(1), b"")
    first = RingReader(Path(ring.path))
    first.read_new()
    first.note_taken()
    first.close()
    ring.write(2, meta(2), b"")
    second = RingReader(Path(ring.path))
    assert [event.seq for event in second.read_new()] == [2]
    second.close()


def test_what_the_last_reader_took_and_did_not_keep_the_next_one_takes_again(ring):
    """Its agent was killed between the taking and the writing."""
    ring.write(1, meta(1), b"")
    first = RingReader(Path(ring.path))
    assert [event.seq for event in first.read_new()] == [1]
    first.rewind()
    assert [event.seq for event in first.read_new()] == [1]
    first.close()
    second = RingReader(Path(ring.path))
    assert [event.seq for event in second.read_new()] == [1]
    second.close()


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.integers(0, 9000), st.booleans()), min_size=1, max_size=40))
def test_any_lengths_in_any_order(tmp_path, writes):
    path = tmp_path / f"{os.urandom(6).hex()}.ring"
    ring = Ring(str(path), 1 << 16, RingMode.RECORD)
    reader = RingReader(path)
    seen: list[int] = []
    for seq, (length, look) in enumerate(writes, 1):
        assert ring.write(seq, meta(seq), os.urandom(length))
        seen += [event.seq for event in reader.read_new()] if look else []
    seen += [event.seq for event in reader.read_new()]
    assert seen == sorted(set(seen))
    assert seen[-1] == len(writes)
    assert reader.lost or seen == list(range(1, len(writes) + 1))
    reader.close()
    ring.forget()


def test_one_that_is_longer_than_the_ring_is_not_written(ring):
    assert not ring.write(1, meta(1), bytes(1 << 16))
    assert ring.head == 0


@pytest.mark.parametrize(
    "bad",
    [meta(1, "no-such-kind"), b"[]", b"{", meta(1, fields="[]"), b"[" * 5000, meta(-1), b"\xff"],
    ids=lambda bad: bad[:12],
)
def test_a_record_that_is_no_event_is_refused_by_name(ring, bad):
    ring.write(1, bad, b"")
    reader = RingReader(Path(ring.path))
    with pytest.raises(RecordingCorrupt):
        reader.read_new()
    ring.write(2, meta(2), b"")
    assert [event.seq for event in reader.read_new()] == [2]
    reader.close()


def test_half_a_surrogate_pair_can_be_kept(ring):
    ring.write(1, meta(1, fields='{"a": "x\\ud800"}'), b"")
    reader = RingReader(Path(ring.path))
    assert reader.read_new()[0].fields["a"] == "x?"
    reader.close()


@given(st.binary(max_size=200))
def test_a_file_of_anything_is_refused(tmp_path_factory, content):
    path = tmp_path_factory.mktemp("any") / "1-a.ring"
    path.write_bytes(content)
    with pytest.raises(RecordingCorrupt):
        RingReader(path)


def test_links_and_devices_are_refused(tmp_path, ring):
    (tmp_path / "link").symlink_to(ring.path)
    os.mkfifo(tmp_path / "fifo")
    for name in ("link", "fifo"):
        with pytest.raises(RecordingCorrupt):
            RingReader(tmp_path / name)


def test_a_wild_head_does_no_harm(ring):
    reader = RingReader(Path(ring.path))
    ring.write(1, meta(1), b"")
    for head in ((1 << 64) - 1, 1 << 40, 7):
        ring.words[6] = head
        with contextlib.suppress(RecordingCorrupt):
            assert all(event.seq == 1 for event in reader.read_new())
    reader.close()


def test_in_a_branch_the_writer_finds_another_epoch(tmp_path):
    path = tmp_path / "1-a.ring"
    make_branch_ring(path, HEADER_BYTES + (1 << 16), 0o600, RingMode.REPLAY)
    raw = path.read_bytes()
    assert len(raw) == HEADER_BYTES + (1 << 16)
    assert struct.unpack_from("<8sQQQ", raw)[3] == RingMode.REPLAY
    with pytest.raises(RecordingCorrupt):
        make_branch_ring(tmp_path / "2", 100, 0o600, RingMode.FREE)


def test_a_record_that_is_being_written_over_the_first_one_costs_only_that(ring):
    """The writer puts the bytes first and says so in the head afterwards; a reader may come in between."""
    written = 0
    while ring.head + 16 + len(meta(written + 1)) <= ring.capacity:
        written += 1
        ring.write(written, meta(written), b"")
    reader = RingReader(Path(ring.path))
    at = ring.head
    ring._put(b"\xff" * 40)
    ring.head = at
    events = reader.read_new()
    assert [event.seq for event in events] == [*range(events[0].seq, written + 1)]
    assert 1 < events[0].seq <= 3
    assert reader.lost > 0
    reader.close()


def test_one_that_was_just_being_made_at_the_commit_is_laid_empty(tmp_path):
    path = tmp_path / "1-a.ring.new"
    make_branch_ring(path, 0, 0o600, RingMode.FREE)
    assert path.stat().st_size == 0
    with pytest.raises(RecordingCorrupt):
        make_branch_ring(tmp_path / "1-a.ring", 0, 0o600, RingMode.FREE)
