"""What the sockets of a control group say to others, copied beside their way (BPF at the group, Linux 5.11).

Three programs see the packets of the group's sockets. A TCP socket that sends SYN without ACK connects: from then on each packet of
it that carries anything is copied into a ring (``BPF_MAP_TYPE_RINGBUF``), and so are questions to name servers and their answers.
Sockets that listen, and what comes in to them, are let be. No packet is changed, held or dropped, nobody waits for who reads the
ring, and where it is full packets are counted and not copied.

A packet is copied before the socket gets it, and before it leaves the host. So whoever has read the ring up to where it ends has
all that the sockets had got by then (``native/relay_library/tapped.c`` reads it, and has the form of what is in it).

Programs and maps last as long as the group. ``find_tap`` has the ring of a group whose programs somebody else has put there.
"""

from __future__ import annotations

import ctypes
import os
import struct
from pathlib import Path
from typing import NamedTuple

from relive.kernel.bpf import assemble, bpf, load, make_map
from relive.kernel.tapprograms import KEPT_BYTES, NOTES_BYTES, RING_BYTES, TapMaps, on_closing, on_packet

__all__ = ["Tap", "find_tap", "make_maps", "tap_group"]

_MAP_UPDATE, _PROG_ATTACH, _PROG_FD, _MAP_FD, _INFO, _PROG_QUERY, _BTF_LOAD = (
    2,
    8,
    13,
    14,
    15,
    16,
    18,
)
_ALLOW_MULTI = 2
_NAME = b"relive_tap"  # of its maps, by which they are found
_ARRAY, _SK_STORAGE, _RINGBUF = 2, 24, 27  # BPF_MAP_TYPE_*
_NO_PREALLOC, _MMAPABLE = 1, 1 << 10
# (BPF_PROG_TYPE_*, enum bpf_attach_type)
_LEAVES, _COMES, _CLOSES = (8, 1), (8, 0), (9, 34)


class Tap(NamedTuple):
    """Descriptors of the maps of a group's programs.

    Attributes:
        size: bytes of the ring, which another version of Relive may have made.
    """

    ring: int
    notes: int
    size: int

    def close(self) -> None:
        """The group's programs keep what they have."""
        os.close(self.ring)
        os.close(self.notes)


def make_maps() -> TapMaps:
    """The memory of the ring is charged to the control group of the caller.

    Raises:
        OSError: EPERM without CAP_BPF, EINVAL where the kernel has no such maps.
    """
    made: list[int] = []
    try:
        made.append(make_map(_NAME, _RINGBUF, 0, 0, RING_BYTES))
        made.append(make_map(_NAME, _ARRAY, 4, NOTES_BYTES, 1, flags=_MMAPABLE))
        _have_first_wake(made[-1])
        types = _load_types()
        try:
            made.append(make_map(_NAME, _SK_STORAGE, 4, KEPT_BYTES, 0, flags=_NO_PREALLOC, types=types))
        finally:
            os.close(types)
    except OSError:
        for one in made:
            os.close(one)
        raise
    return TapMaps(*made)


def tap_group(group: Path, maps: TapMaps) -> None:
    """Have what the processes of a group (of version 2) connect from now on copied, as long as the group exists.

    Raises:
        OSError: as ``bpf.load``, or EINVAL where the kernel has no such programs or places (CONFIG_CGROUP_BPF).
    """
    place = os.open(group, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for (kind, where), steps in (
            (_COMES, on_packet(maps, leaves=False)),
            (_CLOSES, on_closing(maps)),
            (_LEAVES, on_packet(maps, leaves=True)),
        ):
            program = load(assemble(steps), kind, where)
            try:
                bpf(_PROG_ATTACH, struct.pack("=4I", place, program, where, _ALLOW_MULTI))
            finally:
                os.close(program)
    finally:
        os.close(place)


def find_tap(group: Path) -> Tap:
    """The maps of a group for which ``tap_group`` was called; the descriptors are the caller's.

    Raises:
        OSError: ENOENT where it was not; EPERM without CAP_SYS_ADMIN.
    """
    place = os.open(group, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        programs = (ctypes.c_uint32 * 64)()
        query = struct.pack("=IIIIQI", place, _LEAVES[1], 0, 0, ctypes.addressof(programs), len(programs))
        bpf(_PROG_QUERY, query)
    finally:
        os.close(place)
    for number in programs:
        found = _maps_of(number) if number else None
        if found is not None:
            return found
    raise FileNotFoundError(2, f"no program copies what {group} says to others")


def _have_first_wake(notes: int) -> None:
    """Who waits for the ring is woken by what comes first; who reads it says what it wants itself."""
    key, value = ctypes.c_uint32(0), ctypes.create_string_buffer(struct.pack("=QQQ", 0, 1, 0), NOTES_BYTES)
    bpf(_MAP_UPDATE, struct.pack("=IIQQQ", notes, 0, ctypes.addressof(key), ctypes.addressof(value), 0))


def _load_types() -> int:
    """The types of what is kept of a socket (BTF), without which the kernel keeps nothing: int, and several of them."""
    texts = b"\0int\0"
    number = struct.pack("=4I", 1, 1 << 24, 4, 1 << 24 | 32)
    numbers = struct.pack("=6I", 0, 3 << 24, 0, 1, 1, KEPT_BYTES // 4)
    types = number + numbers
    code = struct.pack("=HBBIIIII", 0xEB9F, 1, 0, 24, 0, len(types), len(types), len(texts)) + types + texts
    held = ctypes.create_string_buffer(code, len(code))
    return bpf(_BTF_LOAD, struct.pack("=QQIII", ctypes.addressof(held), 0, len(code), 0, 0))


def _maps_of(number: int) -> Tap | None:
    program = bpf(_PROG_FD, struct.pack("=I", number))
    found: dict[tuple[bytes, int], int] = {}
    size = 0
    try:
        maps = (ctypes.c_uint32 * 8)()
        info = bytearray(64)
        struct.pack_into("=IQ", info, 52, len(maps), ctypes.addressof(maps))
        count = struct.unpack_from("=I", _info(program, info), 52)[0]
        for one in maps[: min(count, len(maps))]:
            descriptor = bpf(_MAP_FD, struct.pack("=I", one))
            kind, _, _, _, entries, _, name = struct.unpack_from("=6I16s", _info(descriptor, bytearray(40)))
            size = entries if kind == _RINGBUF else size
            found[name.rstrip(b"\0"), kind] = descriptor
        ring, notes = found.pop((_NAME, _RINGBUF), None), found.pop((_NAME, _ARRAY), None)
        if ring is None or notes is None:
            return None
        return Tap(ring, notes, size)
    finally:
        os.close(program)
        for descriptor in found.values():
            os.close(descriptor)


def _info(descriptor: int, room: bytearray) -> bytes:
    held = (ctypes.c_char * len(room)).from_buffer(room)
    bpf(_INFO, struct.pack("=IIQ", descriptor, len(room), ctypes.addressof(held)))
    return bytes(room)
