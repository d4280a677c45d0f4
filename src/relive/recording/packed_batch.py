"""Records of rings, packed by C (``native/ring_library.c``): its door to Python."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path

import structlog

from relive.errors import RecordingCorrupt
from relive.recording import layout
from relive.recording.events import Event, EventKind
from relive.recording.ring_batch import DecodedBatch, RingBatch, RingRecords
from relive.recording.rings import INSIDE_KINDS, event_at

__all__ = ["RING_LIBRARY", "PackingLibrary", "load_packing"]

RING_LIBRARY = "ring_library.so"
_VERSION = 1  # RING_LIBRARY_VERSION of ring_library.c
# enum kind_class
_HANDED_ON, _READING, _WANTED, _BEGINNING = range(4)
_CLASSES = {
    EventKind.CLOCK: _READING,
    EventKind.RANDOM: _READING,
    EventKind.FAILURE: _WANTED,
    EventKind.PROCESS_STARTED: _BEGINNING,
}


class _Source(ctypes.Structure):
    _fields_ = (
        ("raw", ctypes.c_char_p),
        ("size", ctypes.c_uint64),
        ("pid", ctypes.c_uint64),
        ("records", ctypes.c_int64),
        ("is_beginning", ctypes.c_uint64),
    )


class _Kind(ctypes.Structure):
    _fields_ = (("name", ctypes.c_char_p), ("size", ctypes.c_uint64), ("kind_class", ctypes.c_uint64))


class PackingLibrary:
    """``ring_library.so``, loaded. For any number of threads.

    Raises:
        OSError: it cannot be loaded, or is another version's.
    """

    def __init__(self, path: Path) -> None:
        self.c = _declared(ctypes.CDLL(str(path)))
        if self.c.ring_library_version() != _VERSION:
            raise OSError(f"{path} is of another version of Relive: run `make setup`")
        kinds = [
            _Kind(name.encode(), len(name), _CLASSES.get(kind, _HANDED_ON))
            for name, kind in INSIDE_KINDS.items()
        ]
        self.kinds = (_Kind * len(kinds))(*kinds)

    def batch(self, rings: Sequence[RingRecords]) -> RingBatch:
        """What they hold. Where one of them holds something else than events, Python takes them all, and says what is wrong."""
        try:
            return _PackedBatch(self, rings)
        except (RecordingCorrupt, MemoryError):
            return DecodedBatch(rings)


def load_packing(tools: Path) -> PackingLibrary | None:
    """The library among the tools; None, with a warning in the log, where it cannot be had: then Python does its work."""
    try:
        return PackingLibrary(tools / RING_LIBRARY)
    except OSError as error:
        structlog.get_logger().warning("events are packed by Python, which takes longer", cause=str(error))
        return None


class _PackedBatch:
    """See ``RingBatch``.

    Raises:
        RecordingCorrupt: one of the rings holds something else than events.
    """

    def __init__(self, library: PackingLibrary, rings: Sequence[RingRecords]) -> None:
        self._c, self._rings = library.c, rings
        self._sources = (_Source * len(rings))(
            *(_Source(ring.raw, len(ring.raw), ring.pid, 0, ring.is_beginning) for ring in rings)
        )
        self._at = self._c.batch_new(self._sources, len(rings), library.kinds, len(library.kinds))
        if not self._at:
            raise MemoryError
        self.count: int = self._c.batch_count(self._at)
        self.refused: dict[int, RecordingCorrupt] = {}
        try:
            self._events = self._left_to_python()
        except BaseException:
            self.close()
            raise

    def _left_to_python(self) -> dict[int, tuple[int, Event]]:
        for ring, source in zip(self._rings, self._sources, strict=True):
            if source.records < 0:
                raise layout.corrupt(ring.path, 0, "not all of it are records")
        events, number = {}, self.packable(0)
        while number < self.count:
            events[number] = self._read(number)
            number += 1 + self.packable(number + 1)
        return events

    def _read(self, number: int) -> tuple[int, Event]:
        index, at = ctypes.c_uint64(), ctypes.c_uint64()
        self._c.batch_place(self._at, number, ctypes.byref(index), ctypes.byref(at))
        ring = self._rings[index.value]
        return ring.pid, event_at(ring.path, ring.raw, at.value)

    def packable(self, first: int) -> int:
        return int(self._c.batch_run(self._at, first))

    def pack(self, first: int, count: int, seq: int) -> bytes:
        raw = ctypes.c_void_p()
        size = self._c.batch_pack(self._at, first, count, seq, ctypes.byref(raw))
        if size < 0:
            raise MemoryError
        return ctypes.string_at(raw, size)

    def event(self, number: int) -> tuple[int, Event]:
        return self._events.get(number) or self._read(number)

    def close(self) -> None:
        self._c.batch_free(self._at)
        self._at = None


def _declared(c: ctypes.CDLL) -> ctypes.CDLL:
    number, at = ctypes.c_size_t, ctypes.c_void_p
    c.batch_new.restype, c.batch_new.argtypes = at, (at, number, at, number)
    c.batch_count.restype, c.batch_count.argtypes = number, (at,)
    c.batch_run.restype, c.batch_run.argtypes = number, (at, number)
    c.batch_place.restype, c.batch_place.argtypes = None, (at, number, at, at)
    c.batch_pack.restype, c.batch_pack.argtypes = ctypes.c_int64, (at, number, number, ctypes.c_uint64, at)
    c.batch_free.restype, c.batch_free.argtypes = None, (at,)
    return c
