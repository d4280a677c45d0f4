"""The part in C writes the ring that the part in Python writes, to the byte."""

from __future__ import annotations

import math
import mmap
import sys
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from .conftest import INPROCESS
from .quick_bench import native, pairs_in

sys.path.insert(0, str(INPROCESS))
from relive_recorder import context, scrub
from relive_recorder.recorder import RECORD, recorder
from relive_recorder.ring import EPOCH, Ring

sys.path.remove(str(INPROCESS))


@pytest.fixture(scope="module")
def benches(tmp_path_factory):
    return pairs_in(tmp_path_factory.mktemp("rings"))


@given(st.binary(max_size=400), st.integers(0, 300))
def test_the_checksum(data, more):
    data += bytes(more)
    assert native.crc32(data) == zlib.crc32(data)


@pytest.mark.parametrize(
    "fields", [{"a": math.nan}, {1: 2}, {"a": {1}}, {"a": 1 << 64}, {"a": "\ud800"}], ids=repr
)
def test_what_is_not_plain_gets_no_number_and_leaves_nothing(benches, fields):
    with benches()[0] as bench:
        assert bench.ring.quick.emit("note", fields, b"", None) is None
        assert (bench.ring.quick.last(), bench.records()) == (0, [])


def test_a_ring_goes_round_and_longer_records_are_left_out(tmp_path):
    scrubber = scrub.Scrubber()

    def made(fd, capacity, epoch):
        return native.Quick(fd, capacity, epoch, 0, 64, scrubber, *context.for_quick())

    for name, make in (("c", made), ("python", None)):
        ring = Ring(str(tmp_path / name), 200, RECORD, make)
        said = [ring.write(number, b"[%d]" % number, b"x" * (number * 37 % 190)) for number in range(40)]
        assert said == [16 + len(b"[%d]" % number) + number * 37 % 190 <= 200 for number in range(40)]
        ring.forget()
    same = [(tmp_path / name).read_bytes() for name in ("c", "python")]
    assert same[0][40:56] + same[0][4096:] == same[1][40:56] + same[1][4096:]


def test_in_the_file_of_a_branch_its_first_record_goes_to_the_beginning(benches):
    with benches()[0] as bench:
        recorder.emit("note", {"about": "before"})
        bench.ring.words[EPOCH] += 2
        assert bench.ring.quick.emit("note", {}, b"", None) is None  # Python has to see where it is
        bench.ring.adopt()
        recorder.emit("note", {"about": "after"})
        assert ["after" in text for text, _ in bench.records()] == [True]


def test_after_it_is_forgotten_nothing_is_written(benches):
    with benches()[0] as bench:
        writer = bench.ring.quick
        bench.ring.forget()
        assert writer.emit("note", {}, b"", None) is None
        assert writer.put(1, b"", b"") is False
        with bench.path.open("r+b") as file:
            assert mmap.mmap(file.fileno(), 0)[40:48] == bytes(8)
