"""Dialogues put together from copies of packets in C (``native/relay_library/tapped.c``): its door to Python. Nothing is decided here."""

from __future__ import annotations

import ctypes
import os
import time
from typing import NamedTuple

from relive.kernel.calltap import RING_BYTES, Tap
from relive.proxies.ingress._relay import Relay

__all__ = ["TapCounts", "TappedDialogues"]

_U64, _AT = ctypes.c_uint64, ctypes.c_void_p
_COPY_BYTES = 96  # struct tapped


class TapCounts(NamedTuple):
    """``struct tap_counts``: dialogues that go on; places at which something is missing, and packets that are; copies that were taken."""

    dialogues: int
    gaps: int
    lost: int
    taken: int


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
        if layout is None or [layout(0), layout(1)] != [_COPY_BYTES, ctypes.sizeof(_Counts)]:
            raise OSError("relay_library.so is of another version of Relive: run `make setup` where this one is")
        signatures: dict[str, tuple[object, list[object]]] = {
            "tap_new": (_AT, [_AT, ctypes.c_int, _U64, ctypes.c_int]),
            "tap_take": (_U64, [_AT, ctypes.c_int64]),
            "tap_wake": (None, [_AT, ctypes.c_int]),
            "tap_count": (None, [_AT, _AT]),
            "tap_end": (None, [_AT]),
        }
        for name, (result, arguments) in signatures.items():
            function = getattr(self._c, name)
            function.restype, function.argtypes = result, arguments
        self._at = self._c.tap_new(relay.address, maps.ring, RING_BYTES, maps.notes)
        if not self._at:
            raise OSError("the ring of copied packets cannot be mapped")

    def fileno(self) -> int:
        """Readable while there is something to take, for who is woken (see ``wake``)."""
        return self._maps.ring

    def take(self) -> int:
        """Record what the service's sockets had sent and got before the call; returns how many bytes of the ring it took."""
        return int(self._c.tap_take(self._at, time.time_ns() - time.monotonic_ns()))

    def wake(self, is_wanted: bool) -> None:
        """Whether who waits for the descriptor is woken by the next packet; ``take`` once more before waiting."""
        self._c.tap_wake(self._at, int(is_wanted))

    def counts(self) -> TapCounts:
        """Of this moment."""
        raw = _Counts()
        self._c.tap_count(self._at, ctypes.byref(raw))
        return TapCounts(*(getattr(raw, name) for name in TapCounts._fields))

    def close(self) -> None:
        """Take nothing more; what is said from now on is the next one's."""
        self._c.tap_end(self._at)
        for descriptor in self._maps:
            os.close(descriptor)
