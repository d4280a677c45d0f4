"""Records of rings that C packs are, to the byte, those that Python makes, whatever a service writes into its ring."""

from __future__ import annotations

import contextlib
import json
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relive.config import load_settings
from relive.recording import layout
from relive.recording.packed_batch import RING_LIBRARY, PackingLibrary
from relive.recording.ring_batch import DecodedBatch, RingBatch, RingRecords
from relive.recording.writer import RecordingWriter

LIBRARY = PackingLibrary(load_settings().tools_path / RING_LIBRARY)
RING = Path("/rings/7-a.ring")
KINDS = ("note", "query", "clock", "random", "failure", "process-started", "commit-taken", "nothing")

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(1 << 66), 1 << 66)
    | st.sampled_from(
        (0, 127, 128, 255, 256, 1 << 16, 1 << 32, (1 << 63) - 1, 1 << 63, -1, -32, -33, -129, -(1 << 63))
    )
    | st.floats()
    | st.text()
    | st.text('\\"\b\f\n\r\t/\x00é€𐀀ab', max_size=300)
    | st.text(st.characters(categories=("Cs",)), max_size=2),
    lambda inner: st.lists(inner, max_size=20) | st.dictionaries(st.text(), inner, max_size=20),
    max_leaves=30,
)
FIELDS = st.dictionaries(st.sampled_from(("file", "asked", "own_seq", "pid")) | st.text(), VALUES, max_size=4)
COUNTS = st.integers(0, 300) | st.integers(0, (1 << 64) + 1)
EVENTS = st.tuples(
    st.lists(COUNTS, min_size=3, max_size=3),
    st.sampled_from(KINDS),
    st.lists(COUNTS, min_size=3, max_size=3),
    FIELDS,
    st.booleans(),
    st.sampled_from((0, 0, 1, 40, 255, 256, 65_535, 65_536)),
)


def record(meta: bytes, data: bytes = b"") -> bytes:
    size = len(meta) + len(data)
    return struct.pack("<IIII", size, len(meta), zlib.crc32(meta + data), size ^ 0xFFFFFFFF) + meta + data


def written(
    numbers: list[int], kind: str, more: list[int], fields: dict[str, object], is_ascii: bool, size: int
) -> bytes:
    text = json.dumps([*numbers, kind, *more, fields], separators=(",", ":"), ensure_ascii=is_ascii)
    return record(text.encode("utf-8", "surrogatepass"), bytes(size))


class Recorded:
    """Two recordings, one of what C packs and one of what Python does."""

    def __init__(self, directory: Path) -> None:
        self._writers = [RecordingWriter(directory / name) for name in ("packed", "decoded")]
        self._sizes = [layout.SEGMENT_HEADER_BYTES] * 2

    def both(self, rings: list[RingRecords]) -> tuple[RingBatch, RingBatch]:
        """The batch of C and that of Python, which refuse the same rings and record the same bytes."""
        packed, decoded = LIBRARY.batch(rings), DecodedBatch(rings)
        assert set(packed.refused) == set(decoded.refused)
        assert packed.count == decoded.count
        assert self._record(0, packed) == self._record(1, decoded)
        return packed, decoded

    def _record(self, index: int, batch: RingBatch) -> bytes:
        """The bytes that a recording grows by, when all that is packable is packed."""
        writer, number = self._writers[index], 0
        while number < batch.count:
            count = batch.packable(number)
            if count:
                writer.append_packed(batch.pack(number, count, writer.last_seq + 1), count)
            else:
                append(writer, batch, number)
            number += count or 1
        writer.flush()
        with layout.segment_path(writer.directory, writer.segment).open("rb") as file:
            file.seek(self._sizes[index])
            grown = file.read()
        self._sizes[index] += len(grown)
        return grown

    def close(self) -> None:
        for writer in self._writers:
            writer.close()


@pytest.fixture(scope="module")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recorded]:
    recordings = Recorded(tmp_path_factory.mktemp("recordings"))
    yield recordings
    recordings.close()


def append(writer: RecordingWriter, batch: RingBatch, number: int) -> None:
    pid, event = batch.event(number)
    at = event.mono_ns, event.wall_ns
    with contextlib.suppress(ValueError, OverflowError):  # no recording holds it; its number is gone
        writer.append(event.kind, 0, event.request, event.data, {**event.fields, "pid": pid}, at=at)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(EVENTS, max_size=6), min_size=1, max_size=3), st.booleans())
def test_the_bytes_are_those_that_python_writes(
    recordings: Recorded, rings: list[list[Any]], is_beginning: bool
) -> None:
    sources = [
        RingRecords(RING, 7 + number, b"".join(written(*event) for event in events), is_beginning)
        for number, events in enumerate(rings)
    ]
    for batch in recordings.both(sources):
        batch.close()


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=80), st.integers(0, 200), st.booleans())
def test_what_is_no_event_is_refused_as_python_refuses_it(
    recordings: Recorded, noise: bytes, at: int, is_whole: bool
) -> None:
    """Bytes of an event are replaced: with a checksum that fits, or as a ring that was damaged."""
    meta = b'[1,2,3,"query",5,6,7,{"sql":"select 1","rows":[1,-2.5e3,null],"text":"\\u00e9\xc3\xa9"}]'
    spoiled = meta[:at] + noise + meta[at + len(noise) :]
    raw = record(spoiled, b"data") if is_whole else record(meta, b"data")[:at] + noise
    good = RingRecords(RING, 8, record(meta), False)
    for batch in recordings.both([RingRecords(RING, 7, raw, False), good]):
        batch.close()


def test_of_a_plain_event_nothing_is_left_to_python(recordings: Recorded) -> None:
    fields = '{"n":[18446744073709551615,-9223372036854775808,0.1,-0.0,1e300,-0],"t":"\\ud83d\\ude00\\"\\n","é":{"a":true}}'
    plain = record(f'[1,2,3,"query",5,6,7,{fields}]'.encode(), b"data")
    packed, decoded = recordings.both([RingRecords(RING, 7, plain * 40, False)])
    assert (packed.packable(0), decoded.packable(0)) == (40, 0)
    assert packed.event(39) == decoded.event(39)
    packed.close()


@pytest.mark.parametrize(
    ("kind", "request_", "fields", "wants"),
    [
        ("failure", 1, "{}", True),
        ("process-started", 0, "{}", True),
        ("query", 1, '{"file":"1-1.body"}', True),
        ("query", 1, '{"asked":{}}', True),
        ("clock", 0, "{}", True),
        ("clock", 1, "{}", False),
        ("query", 1, '{"in":{"asked":1,"file":2}}', False),
    ],
)
def test_what_an_agent_looks_into_is_left_to_it(kind: str, request_: int, fields: str, wants: bool) -> None:
    meta = f'[1,2,3,"{kind}",5,6,{request_},{fields}]'.encode()
    batch = LIBRARY.batch([RingRecords(RING, 7, record(meta), True)])
    assert batch.packable(0) == (not wants)
    batch.close()


def test_a_process_that_begins_is_looked_into_from_there_on() -> None:
    raw = b"".join(
        record(f'[1,{time},3,"{kind}",5,6,7,{{"asked":{{}}}}]'.encode())
        for time, kind in enumerate(("query", "process-started", "query"))
    )
    batch = LIBRARY.batch([RingRecords(RING, 7, raw, False)])
    assert [batch.packable(number) for number in range(3)] == [1, 0, 0]
    batch.close()
