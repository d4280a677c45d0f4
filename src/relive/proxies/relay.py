"""The relay: threads in C that carry plain HTTP/1 traffic and write the recording. ``native/relay_library.c`` tells what it does.

This is its door to Python, one method for one function; nothing is decided here.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import NamedTuple

__all__ = [
    "Flight",
    "HandedConnection",
    "HandedFlight",
    "Numbers",
    "Post",
    "PostKind",
    "Relay",
    "RelayCounts",
    "Report",
    "SocketName",
    "SocketPlaces",
    "read_flight",
]

_U64, _I64, _I32, _U32 = ctypes.c_uint64, ctypes.c_int64, ctypes.c_int32, ctypes.c_uint32
_SIZE, _TEXT, _AT = ctypes.c_size_t, ctypes.c_char_p, ctypes.c_void_p
_CLIENT, _SERVICE = 0, 1
_VERSION = 4  # RELAY_VERSION of relay_library.c


class Numbers(ctypes.Structure):
    """``struct numbers`` of ``journal.h``: where the writer is, in memory that both sides see."""

    _fields_ = [
        *((name, _U64) for name in ("seq", "request", "connection", "first_seq", "offset", "segment_bytes")),
        *((name, _U64) for name in ("full_at_ns", "full_for_ns", "lost", "retry_at_ns")),
        ("fd", _I64),
        *((name, _U64) for name in ("seen_mono_ns", "seen_wall_ns")),
    ]
    seq: int
    request: int
    connection: int
    first_seq: int
    offset: int
    segment_bytes: int
    full_at_ns: int
    full_for_ns: int
    lost: int
    retry_at_ns: int
    fd: int
    seen_mono_ns: int
    seen_wall_ns: int


class Flight(ctypes.Structure):
    """``struct flight`` of ``engine.h``."""

    _fields_ = [
        *((name, _U64) for name in ("number", "announced", "total", "started", "touched")),
        *((name, _I32) for name in ("is_head", "is_sent", "status", "is_reported")),
    ]


class _Handed(ctypes.Structure):
    _fields_ = [
        ("fd", _I32 * 2),
        *((name, _I32) for name in ("is_silent", "is_uploading")),
        *((name, _U64) for name in ("connection", "requests", "answered", "sent")),
        *((name, _U64) for name in ("upload_number", "upload_left", "upload_total", "flights")),
        ("flight", ctypes.POINTER(Flight)),
        *((name, ctypes.POINTER(ctypes.c_char) * 2) for name in ("read", "passed")),
        *((name, _U64 * 2) for name in ("read_bytes", "passed_bytes")),
        ("address", ctypes.c_char * 64),
    ]


class _Post(ctypes.Structure):
    _fields_ = [
        *((name, _I32) for name in ("kind", "value")),
        *((name, _U64) for name in ("number", "extra", "wall_ns", "seq")),
        ("seconds", ctypes.c_double),
        ("handed", ctypes.POINTER(_Handed)),
    ]


class Report(ctypes.Structure):
    """``struct report`` of ``engine.h``."""

    _fields_ = [(name, _U64) for name in ("connection", "local_port", "request", "sent")]


class _Counts(ctypes.Structure):
    _fields_ = [(name, _U64) for name in ("connections", "in_flight", "answered", "errors", "broken")]


class _PairOrder(ctypes.Structure):
    _fields_ = [
        ("number", _U64),
        ("fd", _I32 * 2),
        ("said", _U64 * 2),
        ("told_in", _U64),
        ("fields", ctypes.c_char_p),
        ("fields_size", _U64),
    ]


class SocketPlaces(NamedTuple):
    """Bytes read from a connected socket, and written to it, each counted from somewhere: only differences mean anything."""

    read: int
    written: int


class RelayCounts(NamedTuple):
    """What the relay has at this moment (the first two), and has seen so far."""

    connections: int = 0
    in_flight: int = 0
    answered: int = 0
    errors: int = 0
    broken: int = 0


class PostKind(IntEnum):
    """``enum post_kind`` of ``engine.h``, and the journal's."""

    RECORDING_OFF = 1
    RECORDING_ON = 2
    SEGMENT_BEGUN = 3
    HANDED = 16
    SPEAKS_HTTP = 17
    SERVICE_SEEN = 18
    ANSWERED = 19
    BROKEN = 20
    UNANSWERED = 21
    PAIR_ENDED = 22


class HandedFlight(NamedTuple):
    """A request whose answer is not whole; times in seconds on the gate's clock."""

    number: int
    announced: int
    total: int
    started: float
    touched: float
    is_head: bool
    is_sent: bool
    is_reported: bool
    status: int | None


@dataclass(frozen=True, slots=True)
class HandedConnection:
    """A connection that the relay carries no longer, with all that it knows. Its descriptors belong to who has this.

    Attributes:
        service_fd: None: there is no connection to the service yet.
        is_silent: the service may have to speak first.
        upload: number, bytes to come and bytes so far of the request whose body the client is sending; None: of none.
        from_client, from_service: read, and not passed on.
        to_client, to_service: passed on, and not sent.
    """

    client_fd: int
    service_fd: int | None
    connection: int
    requests: int
    answered: int
    sent: int
    address: str
    is_silent: bool
    upload: tuple[int, int, int] | None
    flights: tuple[HandedFlight, ...]
    from_client: bytes
    from_service: bytes
    to_client: bytes
    to_service: bytes


class Post(NamedTuple):
    """Something of which Python has to hear; ``engine.h`` says which numbers a kind has."""

    kind: PostKind
    value: int
    number: int
    extra: int
    wall_ns: int
    seq: int
    seconds: float
    handed: HandedConnection | None


class SocketName(NamedTuple):
    """An address as the kernel has it."""

    raw: bytes


class Relay:
    """One relay, with the writer of its recording. Only ``close`` needs to be called at the end.

    Args:
        library: ``relay_library.so``.
        directory: of the recording, whose first segment is there already.
        numbers, head: kept as long as the relay lives.

    Raises:
        OSError: the library cannot be loaded, or there is no memory.
    """

    def __init__(self, library: Path, directory: Path, numbers: Numbers, head: mmap.mmap) -> None:
        self._c = _load(library)
        self._numbers = numbers
        self._head: ctypes.Array[ctypes.c_char] | None = (ctypes.c_char * len(head)).from_buffer(head)
        self._at = self._c.relay_new(
            bytes(directory), ctypes.addressof(numbers), ctypes.addressof(self._head)
        )
        if not self._at:
            raise OSError(f"{library}: the relay cannot be made")

    # The recording

    def append(self, kind: str, connection: int, request: int, fields: bytes, data: bytes) -> int:
        """Record an event; ``fields`` is a packed map."""
        seq: int = self._c.relay_append(
            self._at, kind.encode(), connection, request, fields, len(fields), data, len(data)
        )
        return seq

    def append_at(
        self, at: tuple[int, int], kind: str, connection: int, request: int, fields: bytes, data: bytes
    ) -> int:
        """Record an event that was seen before; ``at``: monotonic and wall time [ns]."""
        seq: int = self._c.relay_append_at(
            *(self._at, *at, kind.encode(), connection, request),
            *(fields, len(fields), data, len(data)),
        )
        return seq

    def flush(self) -> None:
        """Hand all events to the kernel."""
        self._c.relay_flush(self._at)

    def let_go(self) -> None:
        """The head may be unmapped. Only what was posted can be had from then on."""
        self._head = None

    def next_request(self) -> int:
        """A request number never given before."""
        return int(self._c.relay_next_request(self._at))

    def next_connection(self) -> int:
        """A connection number never given before."""
        return int(self._c.relay_next_connection(self._at))

    def add_logs(self, paths: Sequence[str]) -> bool:
        """Files whose sizes are recorded with requests; before there are any. False: they are too many."""
        return not any(self._c.relay_log(self._at, path.encode()) for path in paths)

    @property
    def library(self) -> ctypes.CDLL:
        """For who calls what else is in it."""
        return self._c

    @property
    def address(self) -> int:
        """Of ``struct relay``."""
        return int(self._at)

    # Carrying

    def start(
        self,
        listeners: Sequence[int],
        upstream: SocketName,
        *,
        logs: Sequence[str],
        source: SocketName | None,
        body_limit: int,
        threads: int,
    ) -> bool:
        """Accept and carry from now on. False: it cannot, and has accepted nothing."""
        if not self.add_logs(logs):
            return False
        own = source.raw if source is not None else None
        descriptors = (_I32 * len(listeners))(*listeners)
        begun = self._c.relay_start(
            self._at,
            *(descriptors, len(listeners), upstream.raw, len(upstream.raw)),
            *(own, len(own or b""), body_limit, threads),
        )
        return bool(begun == 0)

    @property
    def posts_fd(self) -> int:
        """Readable when ``posts`` has something."""
        return int(self._c.relay_posts_fd(self._at))

    def posts(self) -> Iterator[Post]:
        """All that has been posted by now."""
        raw = _Post()
        while self._c.relay_take(self._at, ctypes.byref(raw)):
            yield Post(
                PostKind(raw.kind),
                *(raw.value, raw.number, raw.extra, raw.wall_ns, raw.seq, raw.seconds),
                self._read_handed(raw.handed) if raw.kind == PostKind.HANDED else None,
            )

    def freeze(self) -> None:
        """When it returns nothing goes to the service any more."""
        self._c.relay_freeze(self._at)

    def thaw(self) -> None:
        """Go on."""
        self._c.relay_thaw(self._at)

    def reports(self) -> list[dict[str, int | None]]:
        """What the agent is told of each connection that has reached the service."""
        # A frozen relay accepts on, and what it accepts reaches no service.
        room = self.counts().connections + 16
        found = (Report * room)()
        count = min(int(self._c.relay_report(self._at, found, room)), room)
        return [
            {
                "connection": one.connection,
                "local_port": one.local_port,
                "request": one.request or None,
                "sent": one.sent,
            }
            for one in found[:count]
        ]

    def counts(self) -> RelayCounts:
        """Its counters."""
        raw = _Counts()
        self._c.relay_count(self._at, ctypes.byref(raw))
        return RelayCounts(*(getattr(raw, name) for name in RelayCounts._fields))

    def look_for_hangs(self, seconds: float) -> None:
        """Post, once each, the requests that have waited for so long."""
        self._c.relay_look_for_hangs(self._at, int(seconds * 1e9))

    def service_speaks_first(self) -> None:
        """Post every connection to come at once."""
        self._c.relay_service_speaks_first(self._at)

    def client_speaks_http(self) -> None:
        """A silent client is not waiting for the service."""
        self._c.relay_client_speaks_http(self._at)

    def stop_accepting(self) -> None:
        """Take no new connections."""
        self._c.relay_stop_accepting(self._at)

    def close(self) -> None:
        """End all connections; what was posted can still be had."""
        self._c.relay_end(self._at)

    # Pairs of sockets between which bytes are carried: see ``native/relay_library/pairs.c``

    def start_pairs(self, threads: int) -> bool:
        """Begin the threads. False: they cannot be made."""
        return bool(self._c.relay_pairs_start(self._at, threads) == 0)

    def add_pair(
        self,
        number: int,
        descriptors: tuple[int, int],
        *,
        said: tuple[int, int] = (0, 0),
        told_in: int = 0,
        opened: bytes,
    ) -> bool:
        """Carry between the service's socket and the other one from now on. False: not, and they are still the caller's.

        Args:
            number: with which its end is posted, and of its dialogue in the recording.
            said: bytes in each direction that are recorded already; told_in: the segment in which it was opened.
            opened: fields of the event that opens it, as a packed map.
        """
        order = _PairOrder(
            number=number,
            fd=(_I32 * 2)(*descriptors),
            said=(_U64 * 2)(*said),
            told_in=told_in,
            fields=opened,
            fields_size=len(opened),
        )
        return bool(self._c.relay_pair_add(self._at, ctypes.byref(order)) == 0)

    def freeze_pairs(self) -> None:
        """When it returns nothing goes to the service any more."""
        self._c.relay_pairs_freeze(self._at)

    def thaw_pairs(self) -> None:
        """Go on."""
        self._c.relay_pairs_thaw(self._at)

    def pairs_talking(self) -> int:
        """Of how many the service has not ended its direction."""
        return int(self._c.relay_pairs_talking(self._at))

    def copies_of_pair(self, number: int) -> list[int] | None:
        """Other descriptors of its sockets, which are the caller's. None: there is no such pair, or no descriptor is left."""
        found = (_I32 * 2)(-1, -1)
        if self._c.relay_pair_copies(self._at, number, found) or -1 in found:
            for one in found:
                if one >= 0:
                    os.close(one)
            return None
        return list(found)

    def end_pairs(self) -> None:
        """End all of them; what was posted can still be had."""
        self._c.relay_pairs_end(self._at)

    def places(self, descriptor: int) -> SocketPlaces:
        """Where a connected socket stands.

        Raises:
            OSError: the kernel does not say.
        """
        found = (_U64 * 2)()
        if self._c.relay_socket_places(descriptor, found):
            raise OSError("the kernel does not say where a connection stands")
        return SocketPlaces(*found)

    def _read_handed(self, pointer: ctypes._Pointer[_Handed]) -> HandedConnection:
        raw = pointer.contents

        try:
            return HandedConnection(
                client_fd=raw.fd[_CLIENT],
                service_fd=raw.fd[_SERVICE] if raw.fd[_SERVICE] >= 0 else None,
                connection=raw.connection,
                requests=raw.requests,
                answered=raw.answered,
                sent=raw.sent,
                address=raw.address.decode(),
                is_silent=bool(raw.is_silent),
                upload=(raw.upload_number, raw.upload_left, raw.upload_total) if raw.is_uploading else None,
                flights=tuple(read_flight(one) for one in raw.flight[: raw.flights]),
                from_client=ctypes.string_at(raw.read[_CLIENT], raw.read_bytes[_CLIENT]),
                from_service=ctypes.string_at(raw.read[_SERVICE], raw.read_bytes[_SERVICE]),
                to_client=ctypes.string_at(raw.passed[_CLIENT], raw.passed_bytes[_CLIENT]),
                to_service=ctypes.string_at(raw.passed[_SERVICE], raw.passed_bytes[_SERVICE]),
            )
        finally:
            self._c.relay_forget(pointer)


def read_flight(raw: Flight) -> HandedFlight:
    """As Python knows it."""
    return HandedFlight(
        *(raw.number, raw.announced, raw.total, raw.started / 1e9, raw.touched / 1e9),
        *(bool(raw.is_head), bool(raw.is_sent), bool(raw.is_reported), raw.status or None),
    )


def _load(library: Path) -> ctypes.CDLL:
    loaded = ctypes.CDLL(str(library))
    sizes = [ctypes.sizeof(one) for one in (Numbers, _Handed, Flight, _Post, _PairOrder)]
    layout = getattr(loaded, "relay_layout", None)
    if layout is None or [layout(number) for number in range(len(sizes) + 1)] != [_VERSION, *sizes]:
        raise OSError(f"{library} is of another version of Relive: run `make setup` where this one is")
    signatures: dict[str, tuple[object, list[object]]] = {
        "relay_new": (_AT, [_TEXT, _AT, _AT]),
        "relay_posts_fd": (ctypes.c_int, [_AT]),
        "relay_take": (ctypes.c_int, [_AT, _AT]),
        "relay_forget": (None, [_AT]),
        "relay_append": (_U64, [_AT, _TEXT, _U64, _U64, _TEXT, _SIZE, _TEXT, _SIZE]),
        "relay_append_at": (_U64, [_AT, _U64, _U64, _TEXT, _U64, _U64, _TEXT, _SIZE, _TEXT, _SIZE]),
        "relay_flush": (None, [_AT]),
        "relay_next_request": (_U64, [_AT]),
        "relay_next_connection": (_U64, [_AT]),
        "relay_log": (ctypes.c_int, [_AT, _TEXT]),
        "relay_start": (
            ctypes.c_int,
            [_AT, _AT, ctypes.c_int, _TEXT, _SIZE, _TEXT, _SIZE, _U64, ctypes.c_int],
        ),
        "relay_freeze": (None, [_AT]),
        "relay_thaw": (None, [_AT]),
        "relay_report": (_SIZE, [_AT, _AT, _SIZE]),
        "relay_count": (None, [_AT, _AT]),
        "relay_look_for_hangs": (None, [_AT, _U64]),
        "relay_service_speaks_first": (None, [_AT]),
        "relay_client_speaks_http": (None, [_AT]),
        "relay_stop_accepting": (None, [_AT]),
        "relay_end": (None, [_AT]),
        "relay_pairs_start": (ctypes.c_int, [_AT, ctypes.c_int]),
        "relay_pair_add": (ctypes.c_int, [_AT, _AT]),
        "relay_pairs_freeze": (None, [_AT]),
        "relay_pairs_thaw": (None, [_AT]),
        "relay_pairs_talking": (_U64, [_AT]),
        "relay_pair_copies": (ctypes.c_int, [_AT, _U64, _AT]),
        "relay_pairs_end": (None, [_AT]),
        "relay_socket_places": (ctypes.c_int, [ctypes.c_int, _AT]),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(loaded, name)
        function.restype, function.argtypes = result, arguments
    return loaded
