"""Changed words of pages: a map of 512 bits for each page, then the words as they are now (docs/format.md).

Words that stayed are not there at all, so what is new lies together: it compresses better than the XOR with what was there before,
in which zeros part it.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from relive.store.pages.page_diff import WORDS, Flags, Numbers, Pages

__all__ = ["Words", "decode_words", "encode_words"]

Words: TypeAlias = npt.NDArray[np.uint64]
_MAP = WORDS // 8  # [bytes] of a page's map
_WORD = 8  # [bytes]


def encode_words(pages: Pages, mask: Flags) -> bytes:
    """The words of pages that ``mask``, which has a flag for each word, says."""
    maps = np.packbits(mask, axis=1, bitorder="little")
    return maps.tobytes() + pages[mask].astype("<u8", copy=False).tobytes()


def decode_words(data: bytes | memoryview, count: int) -> tuple[Numbers, Words]:
    """Where the words lie in so many pages, counted from the first word of the first page, and the words.

    Raises:
        ValueError: these bytes are no changed words of as many pages.
    """
    view, behind = memoryview(data), count * _MAP
    if len(view) < behind:
        raise ValueError("changed words are cut off")
    mask = np.unpackbits(np.frombuffer(view[:behind], np.uint8), bitorder="little")
    at: Numbers = np.flatnonzero(mask.view(np.bool_))
    if len(view) - behind != _WORD * len(at):
        raise ValueError("changed words are more or fewer than their maps say")
    return at, np.frombuffer(view[behind:], "<u8")
