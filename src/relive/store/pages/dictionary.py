"""Dictionaries: what one commit kept that pages of it and of those after it are compressed against. There is one of full pages, and
one of changed words.

The frames of a dictionary are compressed against nothing, so whoever needs a page reads its frame, and the dictionary once.
"""

from __future__ import annotations

from functools import cached_property

import zstandard

from relive.store.pages.size import PAGE

__all__ = ["DICTIONARY_MOST", "Dictionary"]

DICTIONARY_MOST = 2048  # [pages] of which it holds something
_LEVEL = 3  # of zstd
_FRAME = 128 * PAGE  # [bytes] compressed against it at once, at most
_SEARCH_LEAST, _SEARCH_MOST = (
    17,
    19,
)  # [log2 entries] of the tables by which it is searched: they fit into the processor's cache


class Dictionary:
    """One dictionary, ready for use; made ready when it is first asked for. Use it from one thread.

    Attributes:
        data: the frames of it, decompressed, one after the other.
    """

    def __init__(self, data: bytes) -> None:
        self.data = data

    @cached_property
    def compressor(self) -> zstandard.ZstdCompressor:
        """Compresses frames against it."""
        search = min(_SEARCH_MOST, max(_SEARCH_LEAST, len(self.data).bit_length() - 3))
        options = zstandard.ZstdCompressionParameters.from_level(
            _LEVEL,
            source_size=_FRAME,
            dict_size=len(self.data),
            window_log=(_FRAME + len(self.data)).bit_length(),
            hash_log=search,
            chain_log=search,
        )
        given = zstandard.ZstdCompressionDict(self.data, dict_type=zstandard.DICT_TYPE_RAWCONTENT)
        given.precompute_compress(compression_params=options)
        return zstandard.ZstdCompressor(compression_params=options, dict_data=given)

    @cached_property
    def decompressor(self) -> zstandard.ZstdDecompressor:
        """Decompresses what ``compressor`` made."""
        given = zstandard.ZstdCompressionDict(self.data, dict_type=zstandard.DICT_TYPE_RAWCONTENT)
        return zstandard.ZstdDecompressor(dict_data=given)
