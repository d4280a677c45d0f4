"""Blobs, such as a commit's index: each is one frame of a pack, compressed against an earlier one as what came before."""

from __future__ import annotations

import zstandard

__all__ = ["WINDOW_MOST", "BlobDictionary", "as_dictionary", "compress_blob"]

WINDOW_MOST = 27  # [log2 bytes] how far back a blob's frame may refer, its dictionary included
_WINDOW_LEAST = 18
# [log2 entries] of the tables by which a dictionary is searched. They are copied for each blob: of an eighth of the bytes it
# compresses an index as well as of a quarter, in two thirds of the time.
_SEARCH_LEAST, _SEARCH_MOST = 16, 24
_SEARCH_PART = 3  # [log2]
_LEVEL = 3  # of zstd
# [bytes] The strategy of that level (dfast) searches only so much of a dictionary, its end: zstd keeps 24 bits of each place there.
_TAGGED_MOST = 1 << 24
_READY_MOST = (
    1 << 20
)  # [bytes] a dictionary that is kept ready, with its tables in four to eight times as much memory


class BlobDictionary:
    """What blobs are compressed against. Use it from one thread.

    Making it ready takes four times as long as compressing one like it; so it stays ready until ``release_memory``, unless it is
    large.

    Attributes:
        data: the blob, decompressed.
    """

    def __init__(self, data: bytes) -> None:
        self.data = data
        self._ready: tuple[int, zstandard.ZstdCompressor] | None = None  # and for which ``_whole``

    def compress(self, data: bytes) -> bytes:
        """As a frame, which only who has this dictionary can decompress."""
        if len(self.data) > _READY_MOST:
            return compress_blob(data, self.data)
        whole = _whole(data, self.data)
        if self._ready is None or self._ready[0] != whole:
            options, dictionary = _options(data, self.data), as_dictionary(self.data)
            if dictionary is not None:
                dictionary.precompute_compress(compression_params=options)
            compressor = zstandard.ZstdCompressor(compression_params=options, dict_data=dictionary)
            self._ready = whole, compressor
        return self._ready[1].compress(data)

    def release_memory(self) -> None:
        """It is made ready anew when it is used next."""
        self._ready = None


def compress_blob(data: bytes, dictionary: bytes = b"") -> bytes:
    """Bytes as a frame, with ``dictionary`` as what came before."""
    options = _options(data, dictionary)
    compressor = zstandard.ZstdCompressor(compression_params=options, dict_data=as_dictionary(dictionary))
    return compressor.compress(data)


def as_dictionary(data: bytes) -> zstandard.ZstdCompressionDict | None:
    """What a blob is compressed against, for zstd; None where it is nothing."""
    if not data:
        return None
    return zstandard.ZstdCompressionDict(data, dict_type=zstandard.DICT_TYPE_RAWCONTENT)


def _whole(data: bytes, dictionary: bytes) -> int:
    """Bits of the size of both."""
    return (len(data) + len(dictionary)).bit_length()


def _options(data: bytes, dictionary: bytes) -> zstandard.ZstdCompressionParameters:
    # By itself zstd searches only the last part of a large dictionary.
    whole = _whole(data, dictionary)
    search = min(_SEARCH_MOST, max(_SEARCH_LEAST, whole - _SEARCH_PART))
    return zstandard.ZstdCompressionParameters.from_level(
        _LEVEL,
        source_size=len(data),
        dict_size=len(dictionary),
        window_log=min(WINDOW_MOST, max(_WINDOW_LEAST, whole)),
        hash_log=search,
        chain_log=search,
        strategy=zstandard.STRATEGY_GREEDY if len(dictionary) > _TAGGED_MOST else zstandard.STRATEGY_DFAST,
    )
