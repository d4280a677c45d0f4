"""What a seccomp filter of a commit would answer: classic BPF, run over a call without arguments."""

from __future__ import annotations

import operator
import struct
from collections.abc import Callable

__all__ = ["allows"]

_STEP = struct.Struct("<HBBI")  # struct sock_filter
_ALLOW, _LOG, _ACTION = 0x7FFF0000, 0x7FFC0000, 0xFFFF0000
_ARCHITECTURE_64 = 0xC000003E
_WORDS = 16  # 32-bit words of struct seccomp_data
_MASK = 0xFFFFFFFF
# Opcodes of linux/bpf_common.h, by what seccomp takes (kernel/seccomp.c, seccomp_check_filter).
_LOAD_CALL, _LOAD_VALUE, _RETURN = 0x20, 0x00, 0x06
_JUMP = 0x05
_Work = Callable[[int, int], int]
_ALU: dict[int, _Work] = {
    0x04: operator.add,
    0x14: operator.sub,
    0x24: operator.mul,
    0x44: operator.or_,
    0x54: operator.and_,
}
_ALU |= {0x64: operator.lshift, 0x74: operator.rshift, 0xA4: operator.xor}
_TESTS: dict[int, _Work] = {
    0x15: operator.eq,
    0x25: operator.gt,
    0x35: operator.ge,
    0x45: lambda a, b: bool(a & b),
}


def allows(code: bytes, number: int) -> bool:
    """Whether struct sock_filter[] lets a call of that number of the 64-bit table go on. What cannot be followed does not."""
    data = [0] * _WORDS
    data[0], data[1] = number, _ARCHITECTURE_64
    steps = list(_STEP.iter_unpack(code[: len(code) - len(code) % _STEP.size]))
    accumulator, place = 0, 0
    while place < len(steps):  # jumps lead forward only
        step, if_so, if_not, value = steps[place]
        place += 1
        if step == _RETURN:
            return value & _ACTION in (_ALLOW, _LOG)
        if step == _LOAD_CALL and value % 4 == 0 and value // 4 < _WORDS:
            accumulator = data[value // 4]
        elif step == _LOAD_VALUE:
            accumulator = value
        elif step in _ALU:
            accumulator = _ALU[step](accumulator, value) & _MASK
        elif step == _JUMP:
            place += value
        elif step in _TESTS:
            place += if_so if _TESTS[step](accumulator, value) else if_not
        else:
            return False
    return False
