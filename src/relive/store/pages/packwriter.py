"""Writing a pack, frame by frame (docs/format.md)."""

from __future__ import annotations

import os

import numpy as np
import zstandard
from blake3 import blake3

from relive.store.durable import FreshFile
from relive.store.pages.differ import WORDS, Numbers, Pages
from relive.store.pages.packfile import FRAME_PAGES, Frame, encode_head, encode_table
from relive.store.pages.packs import Packs
from relive.store.pages.runs import PAGE
from relive.store.pages.sealing import FrameSeal

__all__ = ["BATCH", "THREADS", "WINDOW_MOST", "PackWriter", "as_dictionary", "compress_blob"]

THREADS = 2  # of zstd; it ends them before it returns, since the caller may fork
BATCH = 32  # [frames] compressed or decompressed at once
WINDOW_MOST = 27  # [log2 bytes] how far back a blob's frame may refer, its dictionary included
_WINDOW_LEAST = 18
_SEARCH_LEAST, _SEARCH_MOST = 17, 24  # [log2 entries] of the tables by which a dictionary is searched
_LEVEL = 3  # of zstd
_ID_SIZE = 16


class PackWriter:
    """A pack in the making. ``finish`` or ``discard`` must be called."""

    def __init__(self, packs: Packs) -> None:
        pack_id, store_key = os.urandom(_ID_SIZE), packs.store_key()
        self._packs = packs
        self._head = encode_head(pack_id, is_sealed=store_key is not None)
        self._seal = None if store_key is None else FrameSeal(store_key, pack_id, self._head)
        self._frames: list[Frame] = []
        # One buffer for all that waits: fresh memory costs as much as copying there.
        self._waiting: Pages = np.empty((BATCH * FRAME_PAGES, WORDS), np.uint64)
        self._waiting_pages = 0
        self._is_overlay = False
        self._file = FreshFile(packs.incoming, "pack")
        try:
            self._file.write(self._head)
        except BaseException:
            self._file.discard()
            raise

    @property
    def size(self) -> int:
        """Bytes written."""
        return self._file.size

    def add_pages(self, pages: Pages, *, is_overlay: bool = False) -> Numbers:
        """Append pages; returns their slots. Those that are overlays lie in frames for themselves."""
        if is_overlay != self._is_overlay:
            self.end_frame()
            self._is_overlay = is_overlay
        first = len(self._frames) * FRAME_PAGES + self._waiting_pages
        rest = pages
        while len(rest):
            part = rest[: len(self._waiting) - self._waiting_pages]
            self._waiting[self._waiting_pages : self._waiting_pages + len(part)] = part
            self._waiting_pages += len(part)
            rest = rest[len(part) :]
            if self._waiting_pages == len(self._waiting):
                self._compress()
        return np.arange(first, first + len(pages), dtype=np.int64)

    def end_frame(self) -> None:
        """What is added next begins a frame; pages that are alike compress better together."""
        if self._waiting_pages:
            self._compress()

    def add_blob(self, data: bytes, dictionary: bytes | None) -> int:
        """Append bytes as one frame, compressed with ``dictionary`` as what came before; returns the frame's number."""
        return self.add_compressed(compress_blob(data, dictionary), len(data))

    def add_compressed(self, compressed: bytes, raw: int) -> int:
        """The same for what ``compress_blob`` has made of so many bytes."""
        self.end_frame()
        self._write_frame(compressed, raw, is_index=True)
        return len(self._frames) - 1

    def finish(self) -> str:
        """Make it durable; returns its name."""
        self.end_frame()
        table = encode_table(self._frames)
        name = blake3(self._head + table).hexdigest()
        self._file.write(table)
        self._file.publish(self._packs.path(name), mode=0o400)
        return name

    def discard(self) -> None:
        """Throw it away, unless it is finished."""
        self._file.discard()

    def _compress(self) -> None:
        """Write the pages that wait."""
        data = self._waiting[: self._waiting_pages].reshape(-1).view(np.uint8).data
        step = FRAME_PAGES * PAGE
        pieces: list[bytes | bytearray | memoryview] = [
            data[begin : begin + step] for begin in range(0, len(data), step)
        ]
        compressed = zstandard.ZstdCompressor(level=_LEVEL).multi_compress_to_buffer(pieces, threads=THREADS)
        for number, piece in enumerate(pieces):
            self._write_frame(
                compressed[number].tobytes(), len(piece), is_index=False, is_overlay=self._is_overlay
            )
        self._waiting_pages = 0

    def _write_frame(self, compressed: bytes, raw: int, *, is_index: bool, is_overlay: bool = False) -> None:
        number = len(self._frames)
        stored = compressed if self._seal is None else self._seal.seal(number, compressed)
        checksum = blake3(stored).digest()
        self._frames.append(Frame(self._file.size, len(stored), raw, checksum, is_index, is_overlay))
        self._file.write(stored)


def compress_blob(data: bytes, dictionary: bytes | None) -> bytes:
    """Bytes as a frame, with ``dictionary`` as what came before."""
    # By itself zstd searches only the last part of a large dictionary.
    whole = (len(data) + len(dictionary or b"")).bit_length()
    search = min(_SEARCH_MOST, max(_SEARCH_LEAST, whole - 2))
    options = zstandard.ZstdCompressionParameters.from_level(
        _LEVEL,
        source_size=len(data),
        dict_size=len(dictionary or b""),
        window_log=min(WINDOW_MOST, max(_WINDOW_LEAST, whole)),
        hash_log=search,
        chain_log=search,
    )
    compressor = zstandard.ZstdCompressor(compression_params=options, dict_data=as_dictionary(dictionary))
    return compressor.compress(data)


def as_dictionary(data: bytes | None) -> zstandard.ZstdCompressionDict | None:
    """What a blob is compressed against, for zstd."""
    if not data:
        return None
    return zstandard.ZstdCompressionDict(data, dict_type=zstandard.DICT_TYPE_RAWCONTENT)
