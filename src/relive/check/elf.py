"""The little that a program's first bytes tell of it (elf(5)): for which machine it is, and whether it needs libraries."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Elf", "read_elf"]

_PT_INTERP = 3
_BIT_64, _LITTLE = 2, 1
_MOST_HEADERS = 128


@dataclass(frozen=True, slots=True)
class Elf:
    """``bits``: 32 or 64. ``loader``: the program that loads its libraries, empty of a static one."""

    bits: int
    loader: str

    @property
    def is_static(self) -> bool:
        """It needs no library, and LD_PRELOAD does nothing to it."""
        return not self.loader


def read_elf(path: Path) -> Elf | None:
    """None where it is no ELF file of this byte order, or a damaged one; raises OSError where it cannot be read."""
    with path.open("rb") as file:
        head = file.read(64)
        if len(head) < 52 or not head.startswith(b"\x7fELF") or head[5] != _LITTLE:
            return None
        bits = 64 if head[4] == _BIT_64 else 32
        try:
            if bits == 64:
                (start,), (size, count) = (
                    struct.unpack_from("<Q", head, 32),
                    struct.unpack_from("<HH", head, 54),
                )
                form, at, most = "<IIQQQQ", 2, 5
            else:
                (start,), (size, count) = (
                    struct.unpack_from("<I", head, 28),
                    struct.unpack_from("<HH", head, 42),
                )
                form, at, most = "<IIIII", 1, 4
            for number in range(min(count, _MOST_HEADERS)):
                file.seek(start + number * size)
                header = struct.unpack(form, file.read(struct.calcsize(form)))
                if header[0] == _PT_INTERP:
                    file.seek(header[at])
                    return Elf(
                        bits, file.read(min(header[most], 4096)).rstrip(b"\0").decode(errors="replace")
                    )
        except (struct.error, OSError, ValueError):  # a place beyond all files
            return None
    return Elf(bits, "")
