"""The recorded wall clock inside a branch: a shift of CLOCK_REALTIME, written into the vDSO of the restored processes.

Programs read the time through the kernel's vDSO (vdso(7)). Its entry points for the time get a jump to small routines put
into the unused end of its last page; these make the real system call and add the shift. It costs 0.2 to 0.4 us a reading.

Not covered (docs/limits.md): programs that make the system call themselves, programs started in the branch later (exec
brings a fresh vDSO), file times, timers on the absolute wall clock. The monotonic clock needs no help: CRIU restores into
a time namespace in which it goes on.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from relive.errors import RestoreFailed
from relive.kernel import procfs

__all__ = ["shift_wall_clock", "time_routines"]

_NANOSECOND = 1_000_000_000
_DT_HASH, _DT_STRTAB, _DT_SYMTAB = 4, 5, 6
_PT_DYNAMIC = 2
_SYMBOL_SIZE = 24
_ALIGNMENT = 16

# Assembled from the following, with %s seconds and %n nanoseconds (or microseconds) of the shift, 0 <= %n < 1 s:
#   clock_gettime: the system call; on success, for CLOCK_REALTIME (0) and _COARSE (5), add and carry
#   gettimeofday:  the same in microseconds, unless tv is NULL
#   time:          clock_gettime(CLOCK_REALTIME), add and carry, store through the pointer unless NULL
_CLOCK_GETTIME = (
    "b8e40000000f0585c0753b85ff740583ff05753248b8{n}4801460848b8{s}"
    "48010648817e0800ca9a3b7c0b48816e0800ca9a3b48ff0631c0c3"
)
_GETTIMEOFDAY = "b8600000000f0585c075374885ff743248b8{u}4801470848b8{s}48010748817f0840420f007c0b48816f0840420f0048ff0731c0c3"
_TIME = (
    "574883ec1031ff4889e6b8e40000000f0548b8{n}4803442408483d00ca9a3b0f9dc10fb6c948b8{s}480304244801c84883c4105f"
    "4885ff7403488907c3"
)


def time_routines(shift_ns: int) -> dict[str, bytes]:
    """Machine code for each vDSO function that tells the wall clock, by the function's name."""
    seconds, rest = divmod(shift_ns, _NANOSECOND)
    words = {
        "s": struct.pack("<q", seconds).hex(),
        "n": struct.pack("<q", rest).hex(),
        "u": struct.pack("<q", rest // 1000).hex(),
    }
    sources = {
        "__vdso_clock_gettime": _CLOCK_GETTIME,
        "__vdso_gettimeofday": _GETTIMEOFDAY,
        "__vdso_time": _TIME,
    }
    return {name: bytes.fromhex(source.format(**words)) for name, source in sources.items()}


@dataclass(frozen=True, slots=True)
class _Vdso:
    image: bytes

    def symbols(self) -> dict[str, int]:
        """Offsets of the functions it exports (elf(5))."""
        dynamic = self._dynamic_table()
        strings, symbols = dynamic[_DT_STRTAB], dynamic[_DT_SYMTAB]
        count = (
            struct.unpack_from("<II", self.image, dynamic[_DT_HASH])[1]
            if _DT_HASH in dynamic
            else (strings - symbols) // _SYMBOL_SIZE
        )
        found = {}
        for index in range(count):
            name_at, _info, _other, _section, value, _size = struct.unpack_from(
                "<IBBHQQ", self.image, symbols + _SYMBOL_SIZE * index
            )
            end = self.image.index(b"\0", strings + name_at)
            found[self.image[strings + name_at : end].decode(errors="replace")] = value
        return found

    def _dynamic_table(self) -> dict[int, int]:
        (headers,) = struct.unpack_from("<Q", self.image, 32)
        size, count = struct.unpack_from("<HH", self.image, 54)
        for index in range(count):
            kind, _flags, offset = struct.unpack_from("<IIQ", self.image, headers + index * size)
            if kind == _PT_DYNAMIC:
                return self._read_dynamic(offset)
        raise ValueError("the vDSO has no dynamic section")

    def _read_dynamic(self, offset: int) -> dict[int, int]:
        table: dict[int, int] = {}
        while True:
            tag, value = struct.unpack_from("<qQ", self.image, offset)
            if tag == 0:
                return table
            table.setdefault(tag, value)
            offset += 16

    def free_space(self) -> int:
        """Offset behind the last used byte."""
        return len(self.image.rstrip(b"\0")) + _ALIGNMENT & -_ALIGNMENT


@lru_cache(maxsize=2)  # all processes of a kernel have the same
def _places(image: bytes) -> tuple[Mapping[str, int], int]:
    """Of a vDSO: offsets of the functions that it exports, and that behind its last used byte. Raises as ``_Vdso.symbols``."""
    vdso = _Vdso(image)
    return vdso.symbols(), vdso.free_space()


def shift_wall_clock(pids: list[int], shift_ns: int) -> None:
    """Shift what processes read as the wall clock; they must be stopped, with their memory in its final layout.

    Raises:
        RestoreFailed: the vDSO has no room, or cannot be read.
    """
    routines = time_routines(shift_ns)
    for pid in pids:
        try:
            _patch(pid, routines)
        except (OSError, ValueError, KeyError, struct.error) as error:
            raise RestoreFailed(
                "the recorded clock cannot be given to the branch",
                cause=f"the vDSO of process {pid}: {error}",
                remedy="restore with --clock now",
            ) from error


def _patch(pid: int, routines: dict[str, bytes]) -> None:
    place = procfs.vdso_of(pid)
    if place is None:
        return  # a process without a vDSO makes system calls, which are not shifted
    start, end = place
    memory = os.open(f"/proc/{pid}/mem", os.O_RDWR | os.O_CLOEXEC)
    try:
        image = os.pread(memory, end - start, start)
        symbols, room = _places(image)
        for name, code in routines.items():
            if room + len(code) > len(image):
                raise ValueError("no room left in its last page")
            entry = symbols[name]
            os.pwrite(memory, code, start + room)
            os.pwrite(memory, b"\xe9" + struct.pack("<i", room - (entry + 5)), start + entry)
            room = (room + len(code) + _ALIGNMENT - 1) & -_ALIGNMENT
    finally:
        os.close(memory)
