"""The hash of a file of pages, kept as BLAKE3's tree: of a file of which some pages changed only these are hashed again.

The hash is the one that ``blake3`` gives of the whole file. ``native/page_tree.c`` makes the nodes: one of 32 bytes for each page,
and above them one for each two, up to the last two, which are joined to the hash. A node without a neighbour goes up as it is.
"""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from blake3 import blake3

from relive.errors import ToolMissing
from relive.store.pages.page_diff import WORDS, Flags, Numbers, Pages
from relive.store.pages.words import MAP, ChangedWords

__all__ = ["PageTree", "changed_words", "copy_pages", "have_content", "load_library", "same_pages"]

_NODE = 32  # [bytes]
_LIBRARY = Path(__file__).with_name("page_tree.library.so")  # with two dots it is no module

Nodes: TypeAlias = npt.NDArray[np.uint8]  # one row a node


class PageTree:
    """Of a file that does not change.

    Attributes:
        hash: 64 hexadecimal digits.
        age: of how many others it was made, one of the other, since all pages were hashed.
    """

    def __init__(self, nodes: Nodes, pages: int, whole: str, age: int = 0) -> None:
        self._nodes, self._pages = nodes, pages
        self.hash, self.age = whole, age

    @classmethod
    def of(cls, pages: Pages, slots: Numbers) -> PageTree:
        """Of the file whose pages lie in these rows of ``pages``; raises ToolMissing where the library is not built."""
        return cls(np.empty((0, _NODE), np.uint8), 0, "").after(pages, slots, np.empty(0, np.int64))

    def after(self, pages: Pages, slots: Numbers, changed: Numbers) -> PageTree:
        """Of a file that is as this one but for some pages. Afterwards this one is of no use: its nodes are taken over.

        Args:
            slots: the row of ``pages`` that holds each page of the other file.
            changed: numbers of all its pages that this one has otherwise at the same place, or not at all, in ascending order.
        """
        count = len(slots)
        if self._pages == count > 0 and not len(changed):
            return self
        if count < 2:  # no two nodes to be joined
            return PageTree(np.empty((0, _NODE), np.uint8), 0, blake3(pages[slots].tobytes()).hexdigest())
        if not self._pages:
            changed = np.arange(count, dtype=np.int64)
        nodes, known = self._moved(count)
        library = load_library()
        places, changed = np.ascontiguousarray(slots[changed]), np.ascontiguousarray(changed)
        library.relive_hash_pages(_at(pages), _at(places), _at(changed), len(changed), _at(nodes))
        if self._pages != count and (not len(changed) or changed[-1] != count - 1):
            changed = np.append(changed, count - 1)  # the last node of each level may have lost its neighbour
        numbers = np.empty(count, np.int64)
        numbers[: len(changed)] = changed
        root = np.empty((1, _NODE), np.uint8)
        library.relive_join_tree(_at(nodes), count, _at(numbers), len(changed), known, _at(root))
        return PageTree(nodes, count, root.tobytes().hex(), self.age + 1 if self._pages else 0)

    def _moved(self, count: int) -> tuple[Nodes, int]:
        """Its nodes, with room for a file of so many pages, and how many levels of these are known."""
        ours, theirs = _levels(self._pages), _levels(count)
        nodes = self._nodes if ours == theirs else np.empty((sum(theirs), _NODE), np.uint8)
        if ours != theirs:
            begin, their_begin = 0, 0
            for own, their_own in zip(ours, theirs, strict=False):
                both = min(own, their_own)
                nodes[their_begin : their_begin + both] = self._nodes[begin : begin + both]
                begin, their_begin = begin + own, their_begin + their_own
        return nodes, len(ours)


def _levels(pages: int) -> list[int]:
    """How many nodes there are on each level; none of a file that has no tree."""
    found = [pages] if pages > 1 else []
    while found and found[-1] > 2:
        found.append(-(-found[-1] // 2))
    return found


def same_pages(copied: Nodes, offsets: Numbers, pages: Pages, slots: Numbers) -> npt.NDArray[np.bool_]:
    """Of each page that lies at these offsets of ``copied`` whether it is as the one in that row of ``pages``; -1 is no row."""
    same = np.empty(len(slots), np.bool_)
    offsets, slots = np.ascontiguousarray(offsets), np.ascontiguousarray(slots)
    library = load_library()
    library.relive_compare_pages(_at(copied), _at(offsets), _at(pages), _at(slots), len(slots), _at(same))
    return same


def copy_pages(copied: Nodes, offsets: Numbers, pages: Pages, slots: Numbers) -> None:
    """Copy pages that lie at these offsets of ``copied`` to these rows of ``pages``."""
    offsets, slots = np.ascontiguousarray(offsets), np.ascontiguousarray(slots)
    load_library().relive_copy_pages(_at(copied), _at(offsets), _at(pages), _at(slots), len(slots))


def have_content(pages: Pages, rows: Numbers) -> Flags:
    """Of each page, which lies in that row, whether it holds anything but zeros."""
    flags = np.empty(len(rows), np.bool_)
    rows = np.ascontiguousarray(rows)
    load_library().relive_have_content(_at(pages), _at(rows), len(rows), _at(flags))
    return flags


def changed_words(
    pages: Pages,
    rows: Numbers,
    before: Pages,
    before_rows: Numbers,
    bases: Pages,
    base_rows: Numbers,
    most: int,
) -> tuple[Numbers, ChangedWords]:
    """How many words of each page are otherwise than in its base, and the words of those pages of which 1 to ``most`` are.

    Args:
        rows, before_rows, base_rows: where each page lies, and its base: in ``bases``, or in ``before`` where that is -1.
    """
    count = len(rows)
    rows, before_rows, base_rows = map(np.ascontiguousarray, (rows, before_rows, base_rows))
    counts = np.empty(count, np.int64)
    maps, words = np.empty((count + 1, MAP), np.uint8), np.empty(count * most + WORDS, np.uint64)
    load_library().relive_changed_words(
        *(_at(one) for one in (pages, rows, before, before_rows, bases, base_rows)),
        count,
        most,
        *(_at(one) for one in (counts, maps, words)),
    )
    kept = counts[(counts > 0) & (counts <= most)]
    # Copies: what is returned waits for a pack to be written, and must not keep the room for all pages.
    return counts, ChangedWords(maps[: len(kept)].copy(), kept, words[: int(kept.sum())].copy())


def _at(array: npt.NDArray[np.generic]) -> int:
    """Where it lies. A call does not keep it: whoever calls holds the array until it returns."""
    return array.ctypes.data


_PLACE, _COUNT = ctypes.c_void_p, ctypes.c_size_t
_FUNCTIONS = {
    "relive_hash_pages": [_PLACE, _PLACE, _PLACE, _COUNT, _PLACE],
    "relive_join_tree": [_PLACE, _COUNT, _PLACE, _COUNT, _COUNT, _PLACE],
    "relive_compare_pages": [_PLACE, _PLACE, _PLACE, _PLACE, _COUNT, _PLACE],
    "relive_copy_pages": [_PLACE, _PLACE, _PLACE, _PLACE, _COUNT],
    "relive_have_content": [_PLACE, _PLACE, _COUNT, _PLACE],
    "relive_changed_words": [*[_PLACE] * 6, _COUNT, _COUNT, *[_PLACE] * 3],
}


@cache
def load_library() -> ctypes.CDLL:
    """The library; raises ToolMissing where it is not built."""
    try:
        library = ctypes.CDLL(str(_LIBRARY))
        for name, arguments in _FUNCTIONS.items():
            function = getattr(library, name)
            function.argtypes, function.restype = arguments, None
    except (OSError, AttributeError) as error:  # the second: it was built from older sources
        raise ToolMissing(
            "the library that hashes pages cannot be loaded", cause=str(error), remedy="run `make setup`"
        ) from error
    return library
