"""Where functions of the interpreter lie in a running process: from the dynamic symbols of the files it has mapped (elf(5))."""

from __future__ import annotations

import mmap
import os
import re
import struct
from collections.abc import Collection, Iterator

from relive.kernel import procfs
from relive.kernel.procfs import Mapping

__all__ = ["dynamic_symbols", "interpreter_functions"]

_PYTHON = re.compile(r"(lib)?python[0-9.]*[a-z]*[0-9.]*(\.so[0-9.]*)?( \(deleted\))?|uwsgi.*|.*\.cpython.*")
_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_DYNAMIC_SYMBOLS, _LOADED, _FIXED = 11, 1, 2  # SHT_DYNSYM, PT_LOAD, ET_EXEC
_MOST_SECTIONS = 512
_PAGE = mmap.PAGESIZE


def interpreter_functions(pid: int, names: Collection[str]) -> dict[str, int] | None:
    """Addresses of all these functions in a process; None: it is no CPython that has them, or is gone.

    Raises:
        PermissionError: without the rights of root.
    """
    for first in _files(procfs.read_maps(pid)):
        try:
            data = _mapped(f"/proc/{pid}/map_files/{first.start:x}-{first.end:x}")
        except (OSError, ValueError):
            continue
        with data:
            found = dynamic_symbols(data, names)
        if found is not None and found[1].keys() >= set(names):
            base, symbols = found
            bias = 0 if base is None else first.start - base
            return {name: bias + value for name, value in symbols.items()}
    return None


def _files(maps: Iterator[Mapping]) -> list[Mapping]:
    """The first mapping of each file, those first whose name is an interpreter's."""
    seen: dict[str, Mapping] = {}
    for one in maps:
        if one.path.startswith("/") and one.offset == 0:
            seen.setdefault(one.path, one)
    return sorted(seen.values(), key=lambda one: _PYTHON.fullmatch(os.path.basename(one.path)) is None)  # noqa: PTH119


def _mapped(path: str) -> mmap.mmap:
    with open(path, "rb") as file:  # noqa: PTH123 - a link of /proc
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def dynamic_symbols(
    data: mmap.mmap | bytes, names: Collection[str]
) -> tuple[int | None, dict[str, int]] | None:
    """(address that its first page was linked for, values of those of the symbols that it defines); None: no 64-bit ELF file.

    The address is None for a program that is loaded where it was linked for. What is damaged gives what was found so far.
    """
    if len(data) < _HEADER.size or data[:5] != b"\x7fELF\x02":
        return None
    head = _HEADER.unpack_from(data)
    kind, segments_at, sections_at = head[2], head[5], head[6]
    segment_size, segments, section_size, sections = head[9], head[10], head[11], head[12]
    found: dict[str, int] = {}
    base = None if kind == _FIXED else 0
    try:
        if base is not None:
            loaded = [
                _SEGMENT.unpack_from(data, segments_at + number * segment_size) for number in range(segments)
            ]
            base = min((one[3] - one[2] for one in loaded if one[0] == _LOADED), default=0) & -_PAGE
        table = [
            _SECTION.unpack_from(data, sections_at + number * section_size)
            for number in range(min(sections, _MOST_SECTIONS))
        ]
        for section in table:
            if section[1] == _DYNAMIC_SYMBOLS:
                texts = table[section[6]]
                found |= _defined(data, section, texts, {name.encode() for name in names})
    except (struct.error, IndexError, OverflowError):
        pass
    return base, found


def _defined(
    data: mmap.mmap | bytes, section: tuple[int, ...], texts: tuple[int, ...], names: Collection[bytes]
) -> dict[str, int]:
    begin, size = section[4], section[5]
    strings = bytes(data[texts[4] : texts[4] + texts[5]])
    wanted = {strings.find(b"\0" + name + b"\0") + 1: name.decode() for name in names}
    found = {}
    for symbol in _SYMBOL.iter_unpack(data[begin : begin + size // _SYMBOL.size * _SYMBOL.size]):
        name = wanted.get(symbol[0]) if symbol[0] else None
        if name is not None and symbol[4]:
            found[name] = symbol[4]
    return found
