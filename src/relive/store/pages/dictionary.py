"""Dictionaries: what one commit kept that pages of it and of those after it are compressed against. There is one of full pages, and
one of changed words.

The frames of a dictionary are compressed against nothing, or against an earlier dictionary, which they continue then
(``dictionary_policy``). So whoever needs a page reads its frame, and a few packs' dictionaries once.
"""

from __future__ import annotations

from functools import cached_property

import zstandard

from relive.store.pages.size import PAGE

__all__ = ["DICTIONARY_BYTES", "DICTIONARY_MOST", "NODE_MOST", "QUICK_LEVEL", "Dictionary"]

DICTIONARY_MOST = 2048  # [pages] of which what one pack adds to it holds something
NODE_MOST = 512  # [full pages] that a commit adds to one that is there already
DICTIONARY_BYTES = 1 << 24  # that a whole one has at most
_LEVEL = 6  # of zstd
QUICK_LEVEL = 3
"""Of changed words, which each commit has: a third of the time for a twentieth more bytes."""
_FRAME = 128 * PAGE  # [bytes] compressed against it at once, at most


class Dictionary:
    """One dictionary, ready for use; made ready when it is first asked for. Use it from one thread.

    Attributes:
        data: what it continues, then the frames of it, decompressed, one after the other.
        level: of zstd, by which is compressed against it.
    """

    def __init__(self, data: bytes, level: int = _LEVEL) -> None:
        self.data, self.level = data, level

    @cached_property
    def compressor(self) -> zstandard.ZstdCompressor:
        """Compresses frames against it."""
        options = zstandard.ZstdCompressionParameters.from_level(
            self.level,
            source_size=_FRAME,
            dict_size=len(self.data),
            window_log=(_FRAME + len(self.data)).bit_length(),
        )
        given = zstandard.ZstdCompressionDict(self.data, dict_type=zstandard.DICT_TYPE_RAWCONTENT)
        given.precompute_compress(compression_params=options)
        return zstandard.ZstdCompressor(compression_params=options, dict_data=given)

    @cached_property
    def decompressor(self) -> zstandard.ZstdDecompressor:
        """Decompresses what ``compressor`` made."""
        given = zstandard.ZstdCompressionDict(self.data, dict_type=zstandard.DICT_TYPE_RAWCONTENT)
        return zstandard.ZstdDecompressor(dict_data=given)
