"""Small programs for the kernel's virtual machine: assembled, loaded, attached (bpf(2), no library needed)."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence

from relive.kernel import libc

__all__ = ["Step", "assemble", "attach", "bpf", "copied_bytes", "load", "make_map"]

Step = tuple[int, int, int, int | str, int]
"""Operation, destination, source, offset or label, value (linux/bpf.h, ``struct bpf_insn``)."""

_BPF = 321
_MAP_CREATE, _PROG_LOAD, _LINK_CREATE = 0, 5, 28
_COPY = 26  # bpf_skb_load_bytes
_ATTRIBUTES = 128  # [bytes] of union bpf_attr that the calls here can need


def assemble(steps: Sequence[Step | str]) -> bytes:
    """The code of a program; a text among the steps is a label."""
    places: dict[str, int] = {}
    plain: list[Step] = []
    for step in steps:
        if isinstance(step, str):
            places[step] = len(plain)
        else:
            plain.append(step)
    code = b""
    for at, (operation, to, source, offset, value) in enumerate(plain):
        jump = places[offset] - at - 1 if isinstance(offset, str) else offset
        code += struct.pack("=BBhi", operation, source << 4 | to, jump, value)
    return code


def copied_bytes(at: Step, size: int, to: int, otherwise: str) -> list[Step | str]:
    """Copy ``size`` bytes of the packet to ``to`` in the frame (bpf_skb_load_bytes); register 6 holds the packet.

    Args:
        at: puts their place into register 2.
        otherwise: the label that is gone to where the packet has not so many.
    """
    return [
        (0xBF, 1, 6, 0, 0),
        at,
        (0xBF, 3, 10, 0, 0),
        (0x07, 3, 0, 0, to),
        (0xB7, 4, 0, 0, size),
        (0x85, 0, 0, 0, _COPY),
        (0x55, 0, 0, otherwise, 0),
    ]


def load(code: bytes, kind: int, attachment: int) -> int:
    """Descriptor of a program of a kind (BPF_PROG_TYPE_*) for a place (``enum bpf_attach_type``).

    Raises:
        OSError: EPERM without CAP_NET_ADMIN and CAP_BPF or where the kernel is locked down, EINVAL where it does not know the kind,
            ENOSYS without CONFIG_BPF_SYSCALL.
    """
    # Some helpers are for programs whose licence goes with the GPL. Ours may be used under the MIT licence or the GPL, too.
    program, licence = ctypes.create_string_buffer(code), ctypes.create_string_buffer(b"Dual MIT/GPL")
    attributes = struct.pack(
        "=IIQQIIQII16sII",
        kind,
        len(code) // 8,
        ctypes.addressof(program),
        ctypes.addressof(licence),
        0,  # the kernel is asked for no account of what it checks
        0,
        0,
        0,
        0,
        b"relive",
        0,
        attachment,
    )
    return bpf(_PROG_LOAD, attributes)


def make_map(
    name: bytes, kind: int, key: int, value: int, entries: int, *, flags: int = 0, types: int = 0
) -> int:
    """Descriptor of a map (BPF_MAP_TYPE_*).

    Args:
        name: at most 15 bytes.
        key, value: bytes of each.
        types: descriptor of what describes the types of both, of which the first is the key's; 0: nothing does.

    Raises:
        OSError: as ``load``.
    """
    of_key, of_value = (1, 2) if types else (0, 0)
    what = (kind, key, value, entries, flags, 0, 0, name, 0, types, of_key, of_value)
    return bpf(_MAP_CREATE, struct.pack("=7I16s4I", *what))


def attach(program: int, target: int, attachment: int, flags: int = 0) -> int:
    """Descriptor of an attachment, which lives as long as that; ``target``: descriptor or index of what it is attached to.

    Raises:
        OSError: EINVAL where the kernel has no such attachments (before Linux 5.9), or as ``load``.
    """
    return bpf(_LINK_CREATE, struct.pack("=4I", program, target, attachment, flags))


def bpf(command: int, attributes: bytes) -> int:
    """The system call; raises OSError."""
    buffer = ctypes.create_string_buffer(attributes, _ATTRIBUTES)
    return libc.syscall(_BPF, command, ctypes.addressof(buffer), _ATTRIBUTES)
