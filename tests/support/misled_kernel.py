"""A kernel in which a member has come to mean something else: this one, with a description of its types that says so."""

from __future__ import annotations

import struct
from pathlib import Path

__all__ = ["misled", "misplaced"]

DESCRIPTION = Path("/sys/kernel/btf/vmlinux")
HEAD, TYPE, MEMBER = struct.Struct("<HBBIIIII"), struct.Struct("<III"), struct.Struct("<III")
STRUCTURE = 4
BEHIND = {
    1: (4, 0),
    3: (12, 0),
    14: (4, 0),
    17: (4, 0),
    4: (0, 12),
    5: (0, 12),
    15: (0, 12),
    19: (0, 12),
    6: (0, 8),
    13: (0, 8),
}


def misplaced(structure: str, member: str, other: str) -> bytes:
    """The description of this kernel's types (Documentation/bpf/btf.rst), with a member said to be where another one is.

    Args:
        structure: "" for the one without a name that has both.
    """
    found = bytearray(DESCRIPTION.read_bytes())
    _, _, _, head, types, types_size, names, _ = HEAD.unpack_from(found)

    def name(offset: int) -> str:
        start = head + names + offset
        return found[start : found.index(0, start)].decode()

    at, end = head + types, head + types + types_size
    while at < end:
        named, info, _ = TYPE.unpack_from(found, at)
        kind, count = info >> 24 & 0x1F, info & 0xFFFF
        at += TYPE.size
        if kind == STRUCTURE and name(named) == structure:
            places = {name(MEMBER.unpack_from(found, at + 12 * i)[0]): at + 12 * i + 8 for i in range(count)}
            if structure or {member, other} <= places.keys():
                found[places[member] : places[member] + 4] = found[places[other] : places[other] + 4]
        once, each = BEHIND.get(kind, (0, 0))
        at += once + each * count
    return bytes(found)


def misled(program: Path, directory: Path, description: bytes) -> Path:
    """A program that is the other one, and sees this description."""
    seen, made = directory / "vmlinux", directory / "misled"
    seen.write_bytes(description)
    made.write_text(
        f"#!/bin/sh\nexec unshare -m --propagation private sh -c '"
        f'mount --bind "{seen}" {DESCRIPTION} && exec "{program}" "$@"\' {program.name} "$@"\n'
    )
    made.chmod(0o755)
    return made
