"""Changed words of pages: a map of 512 bits for each page, then the words as they are now (docs/format.md).

Words that stayed are not there at all, so what is new lies together: it compresses better than the XOR with what was there before,
in which zeros part it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from relive.store.pages.page_diff import WORDS, Flags, Numbers, Pages

__all__ = ["MAP", "ChangedWords", "Words", "decode_words"]

Words: TypeAlias = npt.NDArray[np.uint64]
MAP = WORDS // 8  # [bytes] of a page's map
_WORD = 8  # [bytes]


class ChangedWords(NamedTuple):
    """Of some pages.

    Attributes:
        maps: of each its map, a row of bytes. counts: of each how many words there are. words: all of them, page after page.
    """

    maps: npt.NDArray[np.uint8]
    counts: Numbers
    words: Words

    @classmethod
    def of(cls, pages: Pages, mask: Flags) -> ChangedWords:
        """The words of pages that ``mask``, which has a flag for each word, says."""
        maps = np.packbits(mask, axis=1, bitorder="little")
        return cls(maps, np.count_nonzero(mask, axis=1), pages[mask].astype("<u8", copy=False))

    @classmethod
    def joined(cls, parts: Sequence[ChangedWords]) -> ChangedWords:
        """Of the pages of one behind those of the other."""
        if len(parts) == 1:
            return parts[0]
        maps, counts, words = zip(*parts, strict=True)
        return cls(np.concatenate(maps), np.concatenate(counts), np.concatenate(words))

    def encoded(self, pages: int) -> Iterator[bytes]:
        """As bytes, of so many pages each time."""
        begins = range(0, len(self.maps), pages)
        ends = [0, *np.add.accumulate(np.add.reduceat(self.counts, begins)).tolist()] if begins else [0]
        for begin, (first, end) in zip(begins, pairwise(ends), strict=True):
            yield self.maps[begin : begin + pages].tobytes() + self.words[first:end].tobytes()


def decode_words(data: bytes | memoryview, count: int) -> tuple[Numbers, Words]:
    """Where the words lie in so many pages, counted from the first word of the first page, and the words.

    Raises:
        ValueError: these bytes are no changed words of as many pages.
    """
    view, behind = memoryview(data), count * MAP
    if len(view) < behind:
        raise ValueError("changed words are cut off")
    mask = np.unpackbits(np.frombuffer(view[:behind], np.uint8), bitorder="little")
    at: Numbers = np.flatnonzero(mask.view(np.bool_))
    if len(view) - behind != _WORD * len(at):
        raise ValueError("changed words are more or fewer than their maps say")
    return at, np.frombuffer(view[behind:], "<u8")
