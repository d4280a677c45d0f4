"""Which of some pages are like others among them: by what they hold, at whatever offset, since the same content seldom comes back
at the same place of a page.

A *feature* is a pair of neighbouring words that differ, if its hash is among the lowest 16th of all: so a page has some thirty, and
content that is moved by whole words keeps its own. Repeated words, zeros above all, make no feature.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from relive.store.pages.page_diff import Flags, Pages

__all__ = ["novel_pages"]

_ONE_IN = 16  # pairs that are features
_NEW_LEAST = 3  # one in so many features is new in a page that is told novel
_ODD, _OTHER = np.uint64(0x9E37_79B9_7F4A_7C15), np.uint64(0xC2B2_AE3D_27D4_EB4F)
_CHUNK = 256  # [pages] hashed together


def novel_pages(pages: Pages) -> Flags:
    """For each page whether much of it stands in no page before it that was told novel. One without a feature is."""
    seen: set[int] = set()
    novel = np.ones(len(pages), np.bool_)
    for begin in range(0, len(pages), _CHUNK):
        hashes, is_feature = _features(pages[begin : begin + _CHUNK])
        for row in range(len(hashes)):
            own = hashes[row][is_feature[row]].tolist()
            if own and _NEW_LEAST * sum(one not in seen for one in own) <= len(own):
                novel[begin + row] = False
            else:
                seen.update(own)
    return novel


def _features(pages: Pages) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.bool_]]:
    """The hash of each pair of words, and whether it is a feature."""
    first, second = pages[:, :-1], pages[:, 1:]
    hashes = first * _ODD  # modulo 2**64, as all that follows
    hashes ^= (second * _OTHER) >> np.uint64(7)
    hashes *= _ODD
    hashes ^= hashes >> np.uint64(29)
    return hashes, (hashes < np.uint64(2**64 // _ONE_IN)) & (first != second)
