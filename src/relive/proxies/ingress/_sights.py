"""Connections that are followed in C, off the packets of a port (``native/relay_library/sightings.c``): its door to Python.

It writes the events that ``ObservedConnection`` would, and gives it each connection on which something comes that it does not
understand with certainty, before that is acted on. Nothing is decided here.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from relive.proxies.ingress._segments import Ends, SeenBytes, Segment, Untaken
from relive.proxies.relay import Flight, HandedFlight, Relay, Report, read_flight

__all__ = [
    "HandedSight",
    "HandedStream",
    "InRing",
    "PlainSight",
    "SeenSpeech",
    "SightCounts",
    "Sights",
    "Verdict",
]

_U64, _I64, _I32, _U32, _U16 = (
    ctypes.c_uint64,
    ctypes.c_int64,
    ctypes.c_int32,
    ctypes.c_uint32,
    ctypes.c_uint16,
)
_SIZE, _AT = ctypes.c_size_t, ctypes.c_void_p
_CLIENT, _SERVICE = 0, 1
_EVER = (1 << 64) - 1


class Verdict(IntEnum):
    """What became of a segment: ``enum verdict_of_segment`` of ``sighted.h``, and of a block, of ``sightings.c``."""

    TAKEN = 0
    HANDED = 2
    FOREIGN = 3
    STOOD = 4
    BLOCK_OVER = 16
    TOO_LATE = 17
    PAUSED = 18
    GONE = 19


class InRing(ctypes.Structure):
    """A block in the kernel's ring (``struct in_ring``): the address of how many are not there any more, and its number."""

    _fields_ = [("released", _AT), ("number", _U64)]


class _Ends(ctypes.Structure):
    _fields_ = [
        ("client", ctypes.c_uint8 * 16),
        ("service", ctypes.c_uint8 * 16),
        ("client_port", _U16),
        ("address_bytes", _U16),
    ]


class _Segment(ctypes.Structure):
    _fields_ = [
        ("wall_ns", _U64),
        ("ends", _Ends),
        *((name, _U32) for name in ("sequence", "acknowledged", "flags", "from_client")),
        ("data", _AT),
        *((name, _U64) for name in ("size", "lacks")),
    ]


class _Crossed(ctypes.Structure):
    _fields_ = [("ends", _Ends), ("next", _U32 * 2)]


class _Place(ctypes.Structure):
    _fields_ = [("at", _U64), ("left", _U64)]


class _Piece(ctypes.Structure):
    pass


_Piece._fields_ = [
    ("next", ctypes.POINTER(_Piece)),
    *(("at", _I64), ("size", _U64), ("is_untaken", _U64), ("wall_ns", _U64)),
]  # the data follow


class _Stream(ctypes.Structure):
    _fields_ = [
        ("base", _U32),
        *((name, _I32) for name in ("is_begun", "has_end")),
        *((name, _I64) for name in ("place", "end")),
        ("ahead", _U64),
        *((name, ctypes.POINTER(_Piece)) for name in ("waiting", "last")),
    ]


_FLAGS = (
    "is_spoken", "is_uploading", "client_eof", "service_eof", "began_in_middle", "first_answer_is_open",
    "heard_service", "is_limited", "has_following", "is_split", "is_answering",
)  # fmt: skip


class _Handed(ctypes.Structure):
    _fields_ = [
        ("next", _AT),
        ("ends", _Ends),
        *((name, _U64) for name in ("connection", "requests", "answered", "given")),
        *((name, _U64) for name in ("upload_number", "upload_left", "upload_total", "flights")),
        ("flight", ctypes.POINTER(Flight)),
        ("held", _AT * 2),
        ("held_bytes", _U64 * 2),
        ("odd_ns", _U64),
        ("rest", ctypes.POINTER(_Piece) * 2),
        ("beyond", ctypes.POINTER(_Piece)),
        ("side", _Stream * 2),
        *((name, _U32) for name in ("first", "following")),
        *((name, _I32) for name in _FLAGS),
    ]


class _Plain(ctypes.Structure):
    _fields_ = [
        *((name, _U64) for name in ("connection", "requests", "answered", "given")),
        ("place", _U64 * 2),
        ("base", _U32 * 2),
        ("bytes", _U64 * 2),
        ("in_a_row", _U64),
        ("first", _U32),
        *((name, _I32) for name in ("began_in_middle", "is_speech", "latest")),
    ]


class _Counts(ctypes.Structure):
    _fields_ = [("connections", _U64), ("gaps", _U64)]


class SightCounts(NamedTuple):
    """Connections of which something is known, and places at which packets are missing."""

    connections: int = 0
    gaps: int = 0


class HandedStream(NamedTuple):
    """One direction: see ``ByteStream``."""

    base: int
    place: int
    end: int | None
    waiting: tuple[tuple[int, bytes | Untaken], ...]


class SeenSpeech(NamedTuple):
    """What a connection without HTTP has said so far: see ``PlainBytes``."""

    up_bytes: int
    down_bytes: int
    is_client_latest: bool
    in_a_row: int


class PlainSight(NamedTuple):
    """A connection between two messages, or with no HTTP: see ``ObservedConnection``; ``up``, ``down``: see ``ByteStream``."""

    connection: int
    requests: int
    answered: int
    given: int
    first: int
    began_in_middle: bool
    up: tuple[int, int]
    down: tuple[int, int]
    speech: SeenSpeech | None = None


class SightedAnswer:
    """The rest of an answer, recorded in C: see ``BegunAnswer``."""

    def __init__(self, library: ctypes.CDLL, sights: int, ends: _Ends) -> None:
        self._c, self._at, self._ends = library, sights, ends

    def take(self, data: bytes) -> tuple[int, bool]:
        """As ``BegunAnswer``."""
        return self._go_on(data, len(data))

    def pass_over(self, size: int) -> tuple[bool, bool]:
        """As ``BegunAnswer``."""
        taken, is_over = self._go_on(None, size)
        return bool(taken), is_over

    def _go_on(self, data: bytes | None, size: int) -> tuple[int, bool]:
        is_over = _I32()
        taken = self._c.sights_answer(self._at, ctypes.byref(self._ends), data, size, ctypes.byref(is_over))
        return int(taken), bool(is_over)

    def end(self, how: str, *, client_eof: bool) -> bool:
        """As ``BegunAnswer``."""
        return bool(
            self._c.sights_answer_ended(self._at, ctypes.byref(self._ends), how == "reset", client_eof)
        )


@dataclass(frozen=True, slots=True)
class HandedSight:
    """A connection that C follows no longer, with all that it knows: see ``ObservedConnection``.

    Attributes:
        held_of_client, held_of_service: counted, and not framed.
        odd_ns: CLOCK_REALTIME at which those of the client came that C does not understand; 0: it was handed over for others.
        from_client, from_service: bytes that have their turn, and that nobody has looked at.
        beyond: those of the client that a commit has not.
        upload: number, bytes to come and bytes so far of the request whose body the client is sending; None: of none.
        answer: that to the first of the flights, which has begun; None: it has not.
        following: with ``is_limited``: sequence number of the first byte that the commit has not; None: it has no such connection.
    """

    ends: Ends
    connection: int
    requests: int
    answered: int
    given: int
    upload: tuple[int, int, int] | None
    flights: tuple[HandedFlight, ...]
    answer: SightedAnswer | None
    held_of_client: bytes
    held_of_service: bytes
    odd_ns: int
    from_client: tuple[SeenBytes, ...]
    from_service: tuple[bytes | Untaken, ...]
    up: HandedStream | None
    down: HandedStream | None
    beyond: tuple[SeenBytes, ...]
    first: int
    following: int | None
    is_spoken: bool
    client_eof: bool
    service_eof: bool
    began_in_middle: bool
    first_answer_is_open: bool
    heard_service: bool
    is_limited: bool
    is_split: bool


class Sights:
    """Belongs to one event loop, and to the relay that writes the recording.

    Args:
        port: of the service; address: its own, packed; None: it listens at all of them.
        logs: files whose sizes are recorded, at most 15.

    Raises:
        OSError: there are too many logs, or the library is of another version.
    """

    def __init__(
        self, relay: Relay, port: int, address: bytes | None, *, body_limit: int, logs: Sequence[str]
    ) -> None:
        self._c = _declare(relay.library)
        self._relay = relay
        self._logs = tuple(logs)
        if not relay.add_logs(self._logs):
            raise OSError(f"{len(self._logs)} log files are too many")
        self._at = self._c.sights_new(relay.address, port, address, len(address or b""), body_limit)
        self._place, self._segment, self._latest = _Place(), _Segment(), _U64()

    def begin_block(self, packets: int) -> None:
        """The next ``take`` is of another block."""
        self._place.at, self._place.left = 0, packets

    def take(
        self,
        block: ctypes.Array[ctypes.c_char],
        size: int,
        until_ns: int | None,
        apart_ns: int,
        most: int,
        in_ring: InRing | None = None,
    ) -> Verdict:
        """Take segments until one is not for here, there were so many, or none is left; ``found`` is the last one then.

        Args:
            in_ring: where the block is; None: elsewhere. ``GONE``: it was there; go on in a copy of it.
            until_ns: what came later is ``TOO_LATE``.
            apart_ns: the wall's clock less the monotonic one.
        """
        verdict = self._c.sights_take(
            *(self._at, None if in_ring is None else ctypes.byref(in_ring)),
            *(block, size, ctypes.byref(self._place)),
            *(_EVER if until_ns is None else until_ns, apart_ns, most),
            *(ctypes.byref(self._segment), ctypes.byref(self._latest)),
        )
        return Verdict(verdict)

    @property
    def latest_ns(self) -> int:
        """When the last segment came that ``take`` has seen."""
        return self._latest.value

    @property
    def found(self) -> Segment:
        """The segment at which ``take`` has stopped, while its block is there."""
        raw = self._segment
        data = ctypes.string_at(raw.data, raw.size) if raw.size else b""
        return Segment(
            wall_ns=raw.wall_ns,
            ends=_read_ends(raw.ends),
            from_client=bool(raw.from_client),
            sequence=raw.sequence,
            acknowledged=raw.acknowledged,
            flags=raw.flags,
            data=data,
            lacks=raw.lacks,
        )

    def observe(self, segment: Segment) -> Verdict:
        """Take one segment."""
        return Verdict(self._c.sights_observe(self._at, ctypes.byref(_pack(segment))))

    def is_written(self, segment: Segment) -> bool:
        """The commit that is being placed has all of this segment of the service, whose connection is not Python's."""
        return bool(self._c.sights_is_written(self._at, ctypes.byref(_pack(segment))))

    def handed(self) -> Iterator[HandedSight]:
        """Connections that are Python's from now on, each once."""
        while raw := self._c.sights_handed(self._at):
            try:
                yield self._read_handed(raw.contents)
            finally:
                self._c.sights_free_handed(raw)

    def _read_handed(self, raw: _Handed) -> HandedSight:
        ends = _Ends.from_buffer_copy(raw.ends)
        return _read_handed(raw, SightedAnswer(self._c, self._at, ends) if raw.is_answering else None)

    def take_back(self, ends: Ends, plain: PlainSight) -> None:
        """Follow one again that was handed over."""
        speech = plain.speech or SeenSpeech(0, 0, True, 0)
        raw = _Plain(
            *(plain.connection, plain.requests, plain.answered, plain.given),
            *((_U64 * 2)(plain.up[1], plain.down[1]), (_U32 * 2)(plain.up[0], plain.down[0])),
            *((_U64 * 2)(speech.up_bytes, speech.down_bytes), speech.in_a_row),
            *(plain.first, plain.began_in_middle, plain.speech is not None),
            _CLIENT if speech.is_client_latest else _SERVICE,
        )
        self._c.sights_take_back(self._at, ctypes.byref(_pack_ends(ends)), ctypes.byref(raw))

    def forget(self, ends: Ends) -> None:
        """One that was Python's has ended."""
        self._c.sights_forget(self._at, ctypes.byref(_pack_ends(ends)))

    def unknown(self, ends: Ends) -> tuple[bool, bool]:
        """Of one of which nothing was known before it became Python's: something was missed, and the service has told HTTP."""
        found = int(self._c.sights_unknown(self._at, ctypes.byref(_pack_ends(ends))))
        return bool(found & 1), bool(found & 2)

    def refuse(self, ends: Ends) -> None:
        """Nothing is known here either of one that stood."""
        self._c.sights_refuse(self._at, ctypes.byref(_pack_ends(ends)))

    def lose(self) -> None:
        """Packets are missing, of whatever connections."""
        self._c.sights_lose(self._at)

    def limit(self, crossed: Mapping[Ends, tuple[int, int]]) -> None:
        """Nothing is said of what a commit does not have, until ``unlimit``, after which ``handed`` may have some.

        Args:
            crossed: of the commit's connections, sequence numbers of the first bytes of client and service that it has not.
        """
        raw = (_Crossed * len(crossed))()
        for place, (ends, numbers) in zip(raw, crossed.items(), strict=True):
            place.ends, place.next = _pack_ends(ends), (_U32 * 2)(*numbers)
        self._c.sights_limit(self._at, raw, len(crossed))

    def unlimit(self) -> None:
        """The commit has its place."""
        self._c.sights_unlimit(self._at)

    def open_requests(self) -> list[dict[str, int | None]]:
        """The oldest request of each connection whose answer is not whole."""
        room = self.counts().connections + 1
        found = (Report * room)()
        count = min(int(self._c.sights_open_requests(self._at, found, room)), room)
        return [
            {"connection": one.connection, "local_port": one.local_port or None, "request": one.request}
            for one in found[:count]
        ]

    def stood_still(self, ns: int) -> None:
        """The service did not run for so long."""
        self._c.sights_stood_still(self._at, ns)

    def look_for_hangs(self, limit_ns: int, now_ns: int) -> None:
        """Post, once each, the requests that have waited for so long at that moment of the gate's clock."""
        self._c.sights_look_for_hangs(self._at, limit_ns, max(0, now_ns))

    def note_logs(self, wall_ns: int, sizes: dict[str, int]) -> None:
        """The sizes of the logs at a moment."""
        found = (_I64 * len(self._logs))(*(sizes.get(path, -1) for path in self._logs))
        self._c.sights_note_logs(self._at, wall_ns, found)

    def counts(self) -> SightCounts:
        """Its counters; the relay has others."""
        raw = _Counts()
        self._c.sights_count(self._at, ctypes.byref(raw))
        return SightCounts(raw.connections, raw.gaps)

    def close(self) -> None:
        """Nothing more is said of any connection. Once, before the relay's end."""
        self._c.sights_end(self._at)


def _pack_ends(ends: Ends) -> _Ends:
    raw = _Ends(client_port=ends.client_port, address_bytes=len(ends.client))
    ctypes.memmove(raw.client, ends.client, len(ends.client))
    ctypes.memmove(raw.service, ends.service, len(ends.service))
    return raw


def _read_ends(raw: _Ends) -> Ends:
    size = raw.address_bytes
    return Ends(bytes(raw.client[:size]), raw.client_port, bytes(raw.service[:size]))


def _pack(segment: Segment) -> _Segment:
    data = ctypes.cast(ctypes.c_char_p(segment.data), _AT)  # the segment outlives the call
    return _Segment(
        *(segment.wall_ns, _pack_ends(segment.ends), segment.sequence, segment.acknowledged),
        *(segment.flags, segment.from_client, data, len(segment.data), segment.lacks),
    )


def _pieces(first: ctypes._Pointer[_Piece]) -> Iterator[tuple[_Piece, bytes | Untaken]]:
    while first:  # type: ignore[truthy-bool]  # one that is NULL is not
        one = first.contents
        at = ctypes.addressof(one) + ctypes.sizeof(_Piece)
        yield one, Untaken(one.size) if one.is_untaken else ctypes.string_at(at, one.size)
        first = one.next


def _seen(first: ctypes._Pointer[_Piece]) -> tuple[SeenBytes, ...]:
    """Of the client, all of whose bytes are taken."""
    return tuple(SeenBytes(one.wall_ns, data) for one, data in _pieces(first) if isinstance(data, bytes))


def _read_stream(raw: _Stream) -> HandedStream | None:
    if not raw.is_begun:
        return None
    waiting = tuple((one.at, data) for one, data in _pieces(raw.waiting))
    return HandedStream(raw.base, raw.place, raw.end if raw.has_end else None, waiting)


def _read_handed(raw: _Handed, answer: SightedAnswer | None) -> HandedSight:
    flags = {name: bool(getattr(raw, name)) for name in _FLAGS if name != "is_answering"}
    has_following, is_uploading = flags.pop("has_following"), flags.pop("is_uploading")
    return HandedSight(
        ends=_read_ends(raw.ends),
        connection=raw.connection,
        requests=raw.requests,
        answered=raw.answered,
        given=raw.given,
        upload=(raw.upload_number, raw.upload_left, raw.upload_total) if is_uploading else None,
        flights=tuple(read_flight(one) for one in raw.flight[: raw.flights]),
        answer=answer,
        held_of_client=ctypes.string_at(raw.held[_CLIENT], raw.held_bytes[_CLIENT]),
        held_of_service=ctypes.string_at(raw.held[_SERVICE], raw.held_bytes[_SERVICE]),
        odd_ns=raw.odd_ns,
        from_client=_seen(raw.rest[_CLIENT]),
        from_service=tuple(data for _, data in _pieces(raw.rest[_SERVICE])),
        up=_read_stream(raw.side[_CLIENT]),
        down=_read_stream(raw.side[_SERVICE]),
        beyond=_seen(raw.beyond),
        first=raw.first,
        following=raw.following if has_following else None,
        **flags,
    )


def _declare(library: ctypes.CDLL) -> ctypes.CDLL:
    sizes = [ctypes.sizeof(one) for one in (_Segment, _Crossed, _Handed, _Place, _Plain, InRing, _Piece)]
    if [library.sights_layout(number) for number in range(len(sizes))] != sizes:
        raise OSError(
            "the relay's library is of another version of Relive: run `make setup` where this one is"
        )
    signatures: dict[str, tuple[object, list[object]]] = {
        "sights_new": (_AT, [_AT, _U16, ctypes.c_char_p, _SIZE, _U64]),
        "sights_take": (ctypes.c_int, [_AT, _AT, _AT, _SIZE, _AT, _U64, _I64, ctypes.c_uint, _AT, _AT]),
        "sights_observe": (ctypes.c_int, [_AT, _AT]),
        "sights_is_written": (ctypes.c_int, [_AT, _AT]),
        "sights_handed": (ctypes.POINTER(_Handed), [_AT]),
        "sights_free_handed": (None, [ctypes.POINTER(_Handed)]),
        "sights_answer": (_SIZE, [_AT, _AT, ctypes.c_char_p, _SIZE, _AT]),
        "sights_answer_ended": (ctypes.c_int, [_AT, _AT, ctypes.c_int, ctypes.c_int]),
        "sights_forget": (None, [_AT, _AT]),
        "sights_unknown": (ctypes.c_int, [_AT, _AT]),
        "sights_refuse": (None, [_AT, _AT]),
        "sights_take_back": (None, [_AT, _AT, _AT]),
        "sights_lose": (None, [_AT]),
        "sights_limit": (None, [_AT, _AT, _SIZE]),
        "sights_unlimit": (None, [_AT]),
        "sights_open_requests": (_SIZE, [_AT, _AT, _SIZE]),
        "sights_stood_still": (None, [_AT, _U64]),
        "sights_look_for_hangs": (None, [_AT, _U64, _U64]),
        "sights_note_logs": (None, [_AT, _U64, _AT]),
        "sights_count": (None, [_AT, _AT]),
        "sights_end": (None, [_AT]),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library
