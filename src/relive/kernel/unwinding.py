"""The calls that a stopped thread is within, by the tables that compilers lay beside x86-64 code (.eh_frame; DWARF 5, 6.4).

Only memory of the process is read, so its files need not be there. Unwinding ends where there is no table (code that a runtime
made, musl's own functions), where a frame cannot be computed from registers that are known, and at a signal's frame.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from relive.kernel.procfs import Mapping

__all__ = ["Tables", "return_addresses"]

_MOST = 64  # calls
_STEPS_MOST = 4096  # of one function's table
_RBP, _RSP, _RETURN = 6, 7, 16  # DWARF numbers (x86-64 psABI, 3.6.2)
# Registers that a callee has to keep, in the order of struct user_regs_struct.
_KEPT = (
    15,
    14,
    13,
    12,
    _RBP,
    3,
)
_EH_FRAME = 0x6474E550  # PT_GNU_EH_FRAME
_LOAD = 1
_HEADER_KNOWN = (1, 0x03, 0x3B)  # version; count as udata4; table of sdata4, relative to the header
# DW_EH_PE_absptr, udata4, udata8, sdata4, sdata8.
_SIZES = {
    0x00: "<Q",
    0x03: "<I",
    0x04: "<Q",
    0x0B: "<i",
    0x0C: "<q",
}
_RELATIVE = 0x10  # DW_EH_PE_pcrel
_ADVANCES = {0x02: "<B", 0x03: "<H", 0x04: "<I"}  # DW_CFA_advance_loc1, 2, 4
_DEFINITIONS = frozenset({0x0C, 0x0D, 0x0E, 0x0F, 0x12, 0x13})  # DW_CFA_def_cfa*
_ENTRY_MOST = 65536  # [bytes]

Read = Callable[[int, int], bytes]
"""(address, length) -> that many bytes of the process; raises OSError."""


class _Unknown(Exception):
    """This frame cannot be computed."""


@dataclass(slots=True)
class _Row:
    """How the caller's registers are found: CFA = register + offset; the others lie at CFA + offset, or are lost (None)."""

    register: int = _RSP
    offset: int = 8
    saved: dict[int, int | None] = field(default_factory=dict)

    def copy(self) -> _Row:
        return _Row(self.register, self.offset, dict(self.saved))


class _Bytes:
    """A cursor."""

    def __init__(self, data: bytes, place: int = 0) -> None:
        self.data, self.place = data, place

    def number(self, form: str) -> int:
        (value,) = struct.unpack_from(form, self.data, self.place)
        self.place += struct.calcsize(form)
        return int(value)

    def unsigned(self) -> int:
        """ULEB128."""
        value = shift = 0
        while True:
            byte = self.number("<B")
            value |= (byte & 0x7F) << shift
            shift += 7
            if not byte & 0x80:
                return value

    def signed(self) -> int:
        """SLEB128."""
        begin = self.place
        value = self.unsigned()
        bits = 7 * (self.place - begin)
        return value - (1 << bits) if value >> (bits - 1) & 1 else value


@dataclass(frozen=True, slots=True)
class _Common:
    """A common information entry."""

    code_unit: int
    data_unit: int
    encoding: int
    has_more: bool
    program: bytes


class Tables:
    """The tables of the modules of one stopped process."""

    def __init__(self, maps: Sequence[Mapping], read: Read) -> None:
        self._read = read
        self._maps = [one for one in maps if one.path.startswith("/")]
        self._begins = [one.start for one in self._maps]
        self._headers: dict[int, int] = {}  # of a module's first mapping -> of its table

    def row(self, place: int) -> _Row:
        """How the frame of the function there is computed, at that instruction; raises _Unknown."""
        header = self._header(place)
        version, _, count_form, table_form = self._read(header, 4)
        if (version, count_form, table_form) != _HEADER_KNOWN:
            raise _Unknown
        (count,) = struct.unpack("<I", self._read(header + 8, 4))
        low, high = 0, count
        while low < high:
            middle = (low + high) // 2
            if self._entry(header, middle)[0] <= place:
                low = middle + 1
            else:
                high = middle
        if low == 0:
            raise _Unknown
        return self._function(self._entry(header, low - 1)[1], place)

    def _entry(self, header: int, number: int) -> tuple[int, int]:
        begin, entry = struct.unpack("<ii", self._read(header + 12 + 8 * number, 8))
        return header + begin, header + entry

    def _header(self, place: int) -> int:
        at = bisect_right(self._begins, place) - 1
        if at < 0 or place >= self._maps[at].end or "x" not in self._maps[at].permissions:
            raise _Unknown
        path = self._maps[at].path
        first = next(
            (one for one in reversed(self._maps[: at + 1]) if one.path == path and one.offset == 0), None
        )
        if first is None:
            raise _Unknown
        if first.start not in self._headers:
            self._headers[first.start] = self._find_header(first.start)
        return self._headers[first.start]

    def _find_header(self, base: int) -> int:
        head = self._read(base, 64)
        if head[:4] != b"\x7fELF":
            raise _Unknown
        (offset,) = struct.unpack_from("<Q", head, 32)
        size, count = struct.unpack_from("<HH", head, 54)
        found: int | None = None
        load: int | None = None
        for number in range(count):
            kind, _, where, address = struct.unpack_from(
                "<IIQQ", self._read(base + offset + number * size, 24)
            )
            if kind == _LOAD and where == 0:
                load = int(address)
            elif kind == _EH_FRAME:
                found = int(address)
        if found is None or load is None:
            raise _Unknown
        return base - load + found

    def _function(self, entry: int, place: int) -> _Row:
        length, back = struct.unpack("<II", self._read(entry, 8))
        if not 4 <= length <= _ENTRY_MOST:
            raise _Unknown
        common = self._common(entry + 4 - back)
        cursor = _Bytes(self._read(entry + 8, length - 4))
        begin = _encoded(cursor, common.encoding, entry + 8)
        size = _encoded(cursor, common.encoding & 0x0F, 0)
        if not begin <= place < begin + size:
            raise _Unknown
        if common.has_more:
            cursor.place += cursor.unsigned()
        first = _run(_Bytes(common.program), common, _Row(), _Row(), None)
        return _run(cursor, common, first.copy(), first, place - begin)

    def _common(self, entry: int) -> _Common:
        length, identity = struct.unpack("<II", self._read(entry, 8))
        if not 4 <= length <= _ENTRY_MOST or identity != 0:
            raise _Unknown
        cursor = _Bytes(self._read(entry + 8, length - 4))
        version = cursor.number("<B")
        end = cursor.data.index(b"\0", cursor.place)
        more = cursor.data[cursor.place : end].decode("latin-1")
        cursor.place = end + 1
        code_unit, data_unit = cursor.unsigned(), cursor.signed()
        if (cursor.number("<B") if version == 1 else cursor.unsigned()) != _RETURN:
            raise _Unknown
        encoding = 0
        if more.startswith("z"):
            after = cursor.unsigned() + cursor.place
            for letter in more[1:]:
                match letter:
                    case "R":
                        encoding = cursor.number("<B")
                    case "L":
                        cursor.place += 1
                    case "P":
                        _encoded(cursor, cursor.number("<B") & 0x0F, 0)
                    case _:  # "S": of a signal's frame
                        raise _Unknown
            cursor.place = after
        elif more:
            raise _Unknown
        return _Common(code_unit, data_unit, encoding, bool(more), cursor.data[cursor.place :])


def _encoded(cursor: _Bytes, encoding: int, base: int) -> int:
    """A pointer; ``base``: the address of the cursor's data."""
    form = _SIZES.get(encoding & 0x0F)
    if form is None or encoding & 0xF0 not in (0, _RELATIVE):
        raise _Unknown
    here = base + cursor.place
    return cursor.number(form) + (here if encoding & _RELATIVE else 0)


def _run(cursor: _Bytes, common: _Common, row: _Row, first: _Row, until: int | None) -> _Row:
    """Run a program of call frame instructions up to an offset in the function, or to its end."""
    at, remembered, steps = 0, list[_Row](), 0
    while cursor.place < len(cursor.data):
        steps += 1
        if steps > _STEPS_MOST:
            raise _Unknown
        step = cursor.number("<B")
        low = step & 0x3F
        advance = None
        match step & 0xC0:
            case 0x40:
                advance = low
            case 0x80:
                row.saved[low] = cursor.unsigned() * common.data_unit
            case 0xC0:
                _restore(row, first, low)
            case _:
                advance = _run_long(step, cursor, common, row, first, remembered)
        if advance is not None:
            at += advance * common.code_unit
            if until is not None and at > until:
                break
    return row


def _run_long(
    step: int, cursor: _Bytes, common: _Common, row: _Row, first: _Row, remembered: list[_Row]
) -> int | None:
    """One of those whose operands follow; returns by how much it advances, if it does."""
    if step in _ADVANCES:
        return cursor.number(_ADVANCES[step])
    if step in _DEFINITIONS:
        _define(step, cursor, common, row)
        return None
    match step:
        case 0x00:  # nop
            pass
        case 0x05:  # offset_extended
            register = cursor.unsigned()
            row.saved[register] = cursor.unsigned() * common.data_unit
        case 0x11:  # offset_extended_sf
            register = cursor.unsigned()
            row.saved[register] = cursor.signed() * common.data_unit
        case 0x06:  # restore_extended
            _restore(row, first, cursor.unsigned())
        case 0x07:  # undefined
            row.saved[cursor.unsigned()] = None
        case 0x08:  # same_value
            row.saved.pop(cursor.unsigned(), None)
        case 0x09:  # register
            row.saved[cursor.unsigned()] = None
            cursor.unsigned()
        case 0x0A:  # remember_state
            remembered.append(row.copy())
        case 0x0B if remembered:  # restore_state
            known = remembered.pop()
            row.register, row.offset, row.saved = known.register, known.offset, known.saved
        case 0x10 | 0x16:  # expression, val_expression
            row.saved[cursor.unsigned()] = None
            cursor.place += cursor.unsigned()
        case 0x2E:  # GNU_args_size
            cursor.unsigned()
        case _:
            raise _Unknown
    return None


def _define(step: int, cursor: _Bytes, common: _Common, row: _Row) -> None:
    """One of the instructions def_cfa*."""
    match step:
        case 0x0C:  # def_cfa
            row.register, row.offset = cursor.unsigned(), cursor.unsigned()
        case 0x0D:  # def_cfa_register
            row.register = cursor.unsigned()
        case 0x0E:  # def_cfa_offset
            row.offset = cursor.unsigned()
        case 0x0F:  # def_cfa_expression
            cursor.place += cursor.unsigned()
            row.register = -1
        case 0x12:  # def_cfa_sf
            row.register, row.offset = cursor.unsigned(), cursor.signed() * common.data_unit
        case _:  # def_cfa_offset_sf
            row.offset = cursor.signed() * common.data_unit


def _restore(row: _Row, first: _Row, register: int) -> None:
    if register in first.saved:
        row.saved[register] = first.saved[register]
    else:
        row.saved.pop(register, None)


def return_addresses(
    tables: Tables, read: Read, instruction: int, stack: int, kept: Sequence[int] = ()
) -> list[int]:
    """Where each call would return to, the latest first, at most 64; without that into the thread's first function.

    By which call the C library made a thread (clone, clone3) says nothing of what the thread did, and a branch has not both.

    Args:
        kept: r15, r14, r13, r12, rbp and rbx. Without them unwinding ends at a frame that is found by one that nobody has saved.
    """
    known: dict[int, int] = {**dict(zip(_KEPT, kept, strict=False)), _RSP: stack}
    found: list[int] = []
    place = instruction
    while len(found) < _MOST:
        try:
            row = tables.row(place)
            at = row.saved.get(_RETURN)
            if at is None:
                return found[:-1]
            frame = known[row.register] + row.offset
            if frame <= known[_RSP]:
                break  # a table that leads round
            (back,) = struct.unpack("<Q", read(frame + at, 8))
            known = _of_caller(row, frame, known, read)
        except (_Unknown, KeyError, OSError, struct.error, ValueError):
            break
        if back == 0:
            break
        found.append(back)
        place = back - 1  # of the call, which may be its function's last instruction
    return found


def _of_caller(row: _Row, frame: int, known: dict[int, int], read: Read) -> dict[int, int]:
    """The registers of the caller that can be known."""
    found = {_RSP: frame}
    for register in _KEPT:
        if register not in row.saved:
            if register in known:
                found[register] = known[register]
        elif (offset := row.saved[register]) is not None:
            (found[register],) = struct.unpack("<Q", read(frame + offset, 8))
    return found
