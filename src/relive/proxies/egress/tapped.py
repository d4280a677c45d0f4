"""Dialogues put together from copies of packets in C (``native/relay_library/tapped.c``): its door to Python."""

from __future__ import annotations

import ctypes
import time
from typing import NamedTuple

from relive.kernel.calltap import Tap
from relive.proxies.relay import Relay

__all__ = ["Recorded", "TapCounts", "TappedDialogues"]

_U64, _AT = ctypes.c_uint64, ctypes.c_void_p
_COPY_BYTES = 96  # struct tapped


class TapCounts(NamedTuple):
    """``struct tap_counts``.

    Attributes:
        dialogues: that go on.
        gaps: places at which something is missing; lost: packets that are.
        taken: copies.
    """

    dialogues: int
    gaps: int
    lost: int
    taken: int


class Recorded(NamedTuple):
    """What a recording has of a dialogue that went on when its recorder was killed; pairs are of what goes up, and down.

    Attributes:
        places: of the next bytes; bases: TCP sequence numbers of the first ones.
    """

    number: int
    connect_ns: int
    places: tuple[int, int]
    bases: tuple[int, int]
    has_ended: tuple[bool, bool]
    is_encrypted: bool


class _Resumed(ctypes.Structure):
    _fields_ = [
        *((name, _U64) for name in ("number", "connect_ns")),
        ("place", _U64 * 2),
        ("base", ctypes.c_uint32 * 2),
        ("has_ended", ctypes.c_int32 * 2),
        *((name, ctypes.c_int32) for name in ("is_encrypted", "padding")),
    ]


class _Counts(ctypes.Structure):
    _fields_ = [(name, _U64) for name in TapCounts._fields]


class TappedDialogues:
    """For use by one thread.

    Args:
        relay: writes the recording, and is closed after this.
        maps: whose descriptors are this object's from now on.

    Raises:
        OSError: the maps cannot be used, or the library is of another version.
    """

    def __init__(self, relay: Relay, maps: Tap) -> None:
        self._maps = maps
        self._c = relay.library
        layout = getattr(self._c, "tap_layout", None)
        sizes = [_COPY_BYTES, ctypes.sizeof(_Counts), ctypes.sizeof(_Resumed)]
        if layout is None or [layout(which) for which in range(len(sizes))] != sizes:
            raise OSError(
                "relay_library.so is of another version of Relive: run `make setup` where this one is"
            )
        signatures: dict[str, tuple[object, list[object]]] = {
            "tap_new": (_AT, [_AT, ctypes.c_int, _U64, ctypes.c_int]),
            "tap_take": (_U64, [_AT, ctypes.c_int64]),
            "tap_follow": (_U64, [_AT, ctypes.c_int64, _U64, ctypes.c_uint, _U64]),
            "tap_wake": (None, [_AT, ctypes.c_int]),
            "tap_count": (None, [_AT, _AT]),
            "tap_resume": (None, [_AT, _AT]),
            "tap_end": (None, [_AT, ctypes.c_int]),
        }
        for name, (result, arguments) in signatures.items():
            function = getattr(self._c, name)
            function.restype, function.argtypes = result, arguments
        self._at = self._c.tap_new(relay.address, maps.ring, maps.size, maps.notes)
        if not self._at:
            raise OSError("the ring of copied packets cannot be mapped")

    def resume(self, one: Recorded) -> None:
        """Go on with a dialogue; before anything is taken."""
        raw = _Resumed(one.number, one.connect_ns, one.places, one.bases, one.has_ended, one.is_encrypted, 0)
        self._c.tap_resume(self._at, ctypes.byref(raw))

    def fileno(self) -> int:
        """Readable while there is something to take, for who is woken (see ``wake``)."""
        return self._maps.ring

    def take(self) -> int:
        """Record what the service's sockets had sent and got before the call; returns how many bytes of the ring it took."""
        return int(self._c.tap_take(self._at, _apart_ns()))

    def follow(self, pause: float, rounds: int, least: int) -> int:
        """``take`` so often, with a pause [s, less than 1] before each, or until one took no more bytes than ``least``.

        Returns what the last one did. Other threads run meanwhile.
        """
        return int(self._c.tap_follow(self._at, _apart_ns(), round(pause * 1e9), rounds, least))

    def wake(self, is_wanted: bool) -> None:
        """Whether who waits for the descriptor is woken by the next packet; ``take`` once more before waiting."""
        self._c.tap_wake(self._at, int(is_wanted))

    def counts(self) -> TapCounts:
        """Of this moment."""
        raw = _Counts()
        self._c.tap_count(self._at, ctypes.byref(raw))
        return TapCounts(*(getattr(raw, name) for name in TapCounts._fields))

    def close(self, *, is_over: bool = False) -> None:
        """Take nothing more. What is said from now on is the next one's, unless it is over: dialogues that go on end as lost."""
        self._c.tap_end(self._at, int(is_over))
        self._maps.close()


def _apart_ns() -> int:
    return time.time_ns() - time.monotonic_ns()
