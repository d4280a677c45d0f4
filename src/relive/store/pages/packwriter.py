"""Writing a pack, frame by frame (docs/format.md)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import numpy as np
import zstandard
from blake3 import blake3

from relive.store.atomic_io import FreshFile, publish_in_order
from relive.store.pages.blob_dictionary import BlobDictionary, compress_blob
from relive.store.pages.dictionary import QUICK_LEVEL, Dictionary
from relive.store.pages.packfile import FRAME_PAGES, FrameKind, PackFrame, encode_head, encode_table
from relive.store.pages.packs import Packs
from relive.store.pages.page_diff import WORDS, Numbers, Pages
from relive.store.pages.sealing import FrameSeal
from relive.store.pages.words import ChangedWords

__all__ = ["BATCH", "THREADS", "PackWriter"]

THREADS = 2  # of zstd; it ends them before it returns, since the caller may fork
BATCH = 32  # [frames] compressed or decompressed at once
_WAITING_FIRST = 2 * FRAME_PAGES  # [pages] that there is room for at first; it doubles
_ALONE_MOST = 1 << 20  # [bytes] of a batch that one thread compresses sooner than threads are started
_LEVEL = 3  # of zstd
_ID_SIZE = 16
# Of the frames that are compressed against a dictionary one in so many, up to so many in all, can be compressed without it, too, to
# see what it saves.
_SAMPLE, _SAMPLES_MOST = 6, 16


class PackWriter:
    """A pack in the making. ``finish`` or ``discard`` must be called."""

    def __init__(self, packs: Packs) -> None:
        pack_id, store_key = os.urandom(_ID_SIZE), packs.store_key()
        self._packs = packs
        self._head = encode_head(pack_id, is_sealed=store_key is not None)
        self._seal = None if store_key is None else FrameSeal(store_key, pack_id, self._head)
        self._frames: list[PackFrame] = []
        # One buffer for all that waits: fresh memory costs as much as copying there.
        self._waiting: Pages = np.empty((_WAITING_FIRST, WORDS), np.uint64)
        self._waiting_words: list[ChangedWords] = []  # instead, where changed words are written
        self._waiting_pages = 0
        self._kind = FrameKind.PAGES
        self._raw = 0
        self._dictionaries: dict[FrameKind, Dictionary] = {}
        self._samples: dict[FrameKind, list[tuple[bytes, int]]] = {}  # some frames, and what they took
        self._for_dictionary: dict[FrameKind, list[bytes]] = {}
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

    @property
    def raw(self) -> int:
        """Bytes of all frames so far, before they were compressed."""
        return self._raw

    def add_pages(self, pages: Pages, kind: FrameKind = FrameKind.PAGES) -> Numbers:
        """Append pages; returns their slots. Those of each kind (PAGES, DICTIONARY, DELTA) lie in frames for themselves."""
        self._begin_kind(kind)
        first = self._next_slot()
        self._make_room(self._waiting_pages + len(pages))
        done = 0
        while done < len(pages):
            begin = self._waiting_pages
            part = slice(done, done + len(self._waiting) - begin)
            count = len(pages[part])
            self._waiting[begin : begin + count] = pages[part]
            self._waiting_pages += count
            done += count
            if self._waiting_pages == len(self._waiting):
                self._compress()
        return np.arange(first, first + len(pages), dtype=np.int64)

    def add_words(self, changed: ChangedWords, kind: FrameKind = FrameKind.WORDS) -> Numbers:
        """Append changed words of pages, one at least of each; returns their slots. ``kind`` is WORDS, with what pages have."""
        self._begin_kind(kind)
        if self._waiting_pages + len(changed.maps) > BATCH * FRAME_PAGES:
            self.end_frame()
        first = self._next_slot()
        if len(changed.maps):
            self._waiting_words.append(changed)
            self._waiting_pages += len(changed.maps)
        return np.arange(first, first + len(changed.maps), dtype=np.int64)

    def compress_against(self, what: FrameKind, dictionary: Dictionary) -> None:
        """From now on full pages (``what`` is PAGES) or changed words (WORDS) may be added as DELTA; all against the same."""
        self._dictionaries[what] = dictionary

    def compressed_against(self, what: FrameKind) -> Dictionary:
        """What was last given to ``compress_against``, which there must have been."""
        return self._dictionaries[what]

    def sample(self, what: FrameKind) -> tuple[int, int]:
        """Bytes of some of the frames that were added as DELTA, and what they would be without; (0, 0) if there is none.

        That is found out now, and takes as long as compressing them did.
        """
        samples = self._samples.get(what, [])
        compressor = zstandard.ZstdCompressor(level=_LEVEL)
        alone = sum(len(compressor.compress(piece)) for piece, _ in samples)
        return sum(against for _, against in samples), alone

    def dictionary(self, what: FrameKind) -> Dictionary:
        """All that has been added as DICTIONARY, of full pages (PAGES) or changed words (WORDS)."""
        self.end_frame()
        data = b"".join(self._for_dictionary.get(what, []))
        return Dictionary(data, QUICK_LEVEL) if what == FrameKind.WORDS else Dictionary(data)

    def _begin_kind(self, kind: FrameKind) -> None:
        if kind != self._kind:
            self.end_frame()
            self._kind = kind

    def _next_slot(self) -> int:
        return len(self._frames) * FRAME_PAGES + self._waiting_pages

    def _make_room(self, pages: int) -> None:
        """For so many that wait, up to a batch."""
        wanted = len(self._waiting)
        while wanted < min(pages, BATCH * FRAME_PAGES):
            wanted *= 2
        if wanted > len(self._waiting):
            longer = np.empty((wanted, WORDS), np.uint64)
            longer[: self._waiting_pages] = self._waiting[: self._waiting_pages]
            self._waiting = longer

    def end_frame(self) -> None:
        """What is added next begins a frame; pages that are alike compress better together."""
        if self._waiting_pages:
            self._compress()

    def add_blob(self, data: bytes, dictionary: BlobDictionary | None) -> int:
        """Append bytes as one frame, compressed with ``dictionary`` as what came before; returns the frame's number."""
        self.end_frame()
        compressed = compress_blob(data) if dictionary is None else dictionary.compress(data)
        self._write_frame(compressed, len(data), FrameKind.INDEX, 0)
        return len(self._frames) - 1

    def finish(self) -> str:
        """Put it at its place, durable on return; returns its name."""
        name = self.complete()
        publish_in_order([[self.made(name)]])
        return name

    def made(self, name: str) -> tuple[FreshFile, Path]:
        """The file that ``complete`` has named, and its place."""
        return self._file, self._packs.path(name)

    def complete(self) -> str:
        """Write the last of it; returns its name. It is still to be put at its place."""
        self.end_frame()
        table = encode_table(self._frames)
        name = blake3(self._head + table).hexdigest()
        self._file.write(table)
        self._file.complete(0o400)
        return name

    def discard(self) -> None:
        """Throw it away, unless it is at its place."""
        self._file.discard()

    def _compress(self) -> None:
        """Write the pages that wait."""
        counts = [
            min(FRAME_PAGES, self._waiting_pages - begin)
            for begin in range(0, self._waiting_pages, FRAME_PAGES)
        ]
        pieces = list(self._pieces())
        compressed = self._compressed(pieces)
        for one, piece, count in zip(compressed, pieces, counts, strict=True):
            self._write_frame(one, len(piece), self._kind, count)
        if self._kind & FrameKind.DELTA:
            some = zip(pieces[::_SAMPLE], compressed[::_SAMPLE], strict=True)
            samples = self._samples.setdefault(self._kind & FrameKind.WORDS, [])
            samples += [(bytes(piece), len(one)) for piece, one in islice(some, _SAMPLES_MOST - len(samples))]
        if self._kind & FrameKind.DICTIONARY:
            self._for_dictionary.setdefault(self._kind & FrameKind.WORDS, []).extend(map(bytes, pieces))
        self._waiting_pages = 0
        self._waiting_words.clear()

    def _compressed(self, pieces: list[bytes | bytearray | memoryview]) -> list[bytes]:
        if sum(map(len, pieces)) <= _ALONE_MOST:
            compressor = self._compressor()
            return [compressor.compress(piece) for piece in pieces]
        compressed = self._compressor().multi_compress_to_buffer(pieces, threads=THREADS)
        return [compressed[number].tobytes() for number in range(len(pieces))]

    def _pieces(self) -> Iterator[bytes | bytearray | memoryview]:
        """The frames of what waits, as they are compressed."""
        if self._waiting_words:
            yield from ChangedWords.joined(self._waiting_words).encoded(FRAME_PAGES)
            return
        for begin in range(0, self._waiting_pages, FRAME_PAGES):
            pages = self._waiting[begin : min(begin + FRAME_PAGES, self._waiting_pages)]
            yield pages.reshape(-1).view(np.uint8).data

    def _compressor(self) -> zstandard.ZstdCompressor:
        if self._kind & FrameKind.DELTA:
            return self._dictionaries[self._kind & FrameKind.WORDS].compressor
        return zstandard.ZstdCompressor(level=_LEVEL)

    def _write_frame(self, compressed: bytes, raw: int, kind: FrameKind, pages: int) -> None:
        number = len(self._frames)
        stored = compressed if self._seal is None else self._seal.seal(number, compressed)
        checksum = blake3(stored).digest()
        self._frames.append(PackFrame(self._file.size, len(stored), raw, checksum, kind, pages))
        self._raw += raw
        self._file.write(stored)
