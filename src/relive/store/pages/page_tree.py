"""The hash of a file of pages, kept as BLAKE3's tree: of a file of which some pages changed only these are hashed again.

The hash is the one that ``blake3`` gives of the whole file. ``native/page_tree.c`` makes the nodes: one of 32 bytes for each page,
and above them one for each two, up to the last two, which are joined to the hash. A node without a neighbour goes up as it is.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from blake3 import blake3

from relive.errors import ToolMissing
from relive.store.pages.page_diff import Numbers, Pages

__all__ = ["PageTree", "load_library", "same_pages"]

_NODE = 32  # [bytes]
_LIBRARY = Path(__file__).with_name("page_tree.library.so")  # with two dots it is no module

Nodes: TypeAlias = npt.NDArray[np.uint8]  # one row a node


class PageTree:
    """Of a file that does not change.

    Attributes:
        hash: 64 hexadecimal digits.
    """

    def __init__(self, levels: Sequence[Nodes], whole: str) -> None:
        self._levels = levels
        self.hash = whole

    @classmethod
    def of(cls, pages: Pages, slots: Numbers) -> PageTree:
        """Of the file whose pages lie in these rows of ``pages``; raises ToolMissing where the library is not built."""
        return cls([], "").after(pages, slots, np.empty(0, np.int64))

    def after(self, pages: Pages, slots: Numbers, changed: Numbers) -> PageTree:
        """Of a file that is as this one but for some pages.

        Args:
            slots: the row of ``pages`` that holds each page of the other file.
            changed: numbers of all its pages that this one has otherwise at the same place, or not at all, in ascending order.
        """
        count = len(slots)
        if count < 2:  # no two nodes to be joined
            return PageTree([], blake3(pages[slots].tobytes()).hexdigest())
        if not self._levels:
            changed = np.arange(count, dtype=np.int64)
        nodes = self._level(0, count)
        library = load_library()
        places = np.ascontiguousarray(slots[changed])
        library.relive_hash_pages(_at(pages), _at(places), _at(changed), len(changed), _at(nodes))
        levels = [nodes]
        if self._levels and len(self._levels[0]) != count:
            # The last node of each level may have lost its neighbour.
            changed = np.union1d(changed, [count - 1])
        while len(levels[-1]) > 2:
            changed = _parents(changed)
            levels.append(self._joined(len(levels), levels[-1], changed))
        root = np.empty((1, _NODE), np.uint8)
        library.relive_join(_at(levels[-1]), _at(np.zeros(1, np.int64)), 1, 1, _at(root))
        return PageTree(levels, root.tobytes().hex())

    def _joined(self, level: int, children: Nodes, wanted: Numbers) -> Nodes:
        pairs, is_alone = divmod(len(children), 2)
        nodes = self._level(level, pairs + is_alone)
        # The last two nodes of a smaller file were only joined to its hash, which is no node.
        joined = wanted[wanted < pairs] if level < len(self._levels) else np.arange(pairs, dtype=np.int64)
        load_library().relive_join(_at(children), _at(joined), len(joined), 0, _at(nodes))
        if is_alone:
            nodes[-1] = children[-1]
        return nodes

    def _level(self, level: int, count: int) -> Nodes:
        """A copy of one of its levels, with room for so many."""
        nodes = np.empty((count, _NODE), np.uint8)
        if level < len(self._levels):
            kept = self._levels[level][:count]
            nodes[: len(kept)] = kept
        return nodes


def same_pages(copied: Nodes, offsets: Numbers, pages: Pages, slots: Numbers) -> npt.NDArray[np.bool_]:
    """Of each page that lies at these offsets of ``copied`` whether it is as the one in that row of ``pages``; -1 is no row."""
    same = np.empty(len(slots), np.bool_)
    offsets, slots = np.ascontiguousarray(offsets), np.ascontiguousarray(slots)
    library = load_library()
    library.relive_compare_pages(_at(copied), _at(offsets), _at(pages), _at(slots), len(slots), _at(same))
    return same


def _parents(numbers: Numbers) -> Numbers:
    """Of nodes in ascending order, each once."""
    above: Numbers = numbers >> 1
    is_first = np.ones(len(above), np.bool_)
    np.not_equal(above[1:], above[:-1], out=is_first[1:])
    return above[is_first]


def _at(array: npt.NDArray[np.generic]) -> ctypes.c_void_p:
    """Where it lies, as an argument of a call, for whose time it keeps the array: other threads go on meanwhile."""
    return array.ctypes.data_as(ctypes.c_void_p)


@cache
def load_library() -> ctypes.CDLL:
    """The library; raises ToolMissing where it is not built."""
    try:
        library = ctypes.CDLL(str(_LIBRARY))
    except OSError as error:
        raise ToolMissing(
            "the library that hashes pages cannot be loaded", cause=str(error), remedy="run `make setup`"
        ) from error
    place, count = ctypes.c_void_p, ctypes.c_size_t
    library.relive_hash_pages.argtypes = [place, place, place, count, place]
    library.relive_join.argtypes = [place, place, count, ctypes.c_int, place]
    library.relive_compare_pages.argtypes = [place, place, place, place, count, place]
    for function in (library.relive_hash_pages, library.relive_join, library.relive_compare_pages):
        function.restype = None
    return library
