"""Reading frames of a pack: only bytes that match the pack's name are given."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias, cast

import numpy as np
import zstandard

from relive.config import STORE_KEY
from relive.errors import KeyMissing, ObjectMissing
from relive.store.pages.differ import Pages
from relive.store.pages.packfile import (
    COUNT,
    FRAME_PAGES,
    HEAD_SIZE,
    Frame,
    damaged,
    decode_head,
    decode_table,
    table_size,
)
from relive.store.pages.packs import Packs
from relive.store.pages.packwriter import BATCH, THREADS, WINDOW_MOST, as_dictionary
from relive.store.pages.runs import PAGE
from relive.store.pages.sealing import FrameSeal, open_with_any

__all__ = ["PackReader", "Stored"]

Stored: TypeAlias = bytes | bytearray | memoryview
_MOST_RAW = 1 << 30  # [bytes] no frame is larger; asked before memory is taken for it


class PackReader:
    """One pack, open for reading; a context manager. Only bytes that match the pack's name are given."""

    def __init__(self, packs: Packs, name: str) -> None:
        """Open it and check its header.

        Raises:
            ObjectMissing: there is none of that name.
            ObjectCorrupt: its header does not match the name.
            KeyMissing: it is sealed, and there is no store key.
        """
        self._name = name
        try:
            self._file = os.open(packs.path(name), os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            raise ObjectMissing(
                f"pack {name[:12]} is not in the store",
                cause="it was deleted or never arrived",
                remedy="use another commit (`relive log`) that does not need it",
            ) from None
        try:
            head, self._frames = self._read_header()
            pack_id, is_sealed = decode_head(name, head)
            # Which of them it was is found out with the first frame; the key is changed seldom.
            keys = _keys(packs, name) if is_sealed else []
            self._seals = [FrameSeal(key, pack_id, head) for key in keys]
        except BaseException:
            os.close(self._file)
            raise

    def __enter__(self) -> PackReader:
        return self

    def __exit__(self, *_error: object) -> None:
        os.close(self._file)

    @property
    def descriptor(self) -> int:
        """The open file."""
        return self._file

    @property
    def pages(self) -> int:
        """How many it holds."""
        return sum(frame.raw for frame in self._frames if not frame.is_index) // PAGE

    def _read_header(self) -> tuple[bytes, list[Frame]]:
        size = os.fstat(self._file).st_size
        if size < HEAD_SIZE + COUNT.size:
            raise damaged(self._name, "it is cut off")
        head = os.pread(self._file, HEAD_SIZE, 0)
        (count,) = COUNT.unpack(os.pread(self._file, COUNT.size, size - COUNT.size))
        frames_end = size - table_size(count)
        if frames_end < HEAD_SIZE:
            raise damaged(self._name, "it is cut off")
        table = os.pread(self._file, size - frames_end, frames_end)
        return head, decode_table(self._name, head, table, frames_end)

    def blob(self, number: int, dictionary: bytes | None) -> bytes:
        """The bytes of one frame that ``add_blob`` wrote.

        Raises:
            ObjectCorrupt, KeyWrong: they are not what was written.
        """
        frame = self._frame(number)
        (stored,) = self._stored([number])
        try:
            if zstandard.frame_content_size(stored) != frame.raw or frame.raw > _MOST_RAW:
                raise damaged(self._name, f"frame {number} has another size than its header says")
            # The window may reach as far as the dictionary, beyond what zstd admits by itself.
            reader = zstandard.ZstdDecompressor(
                dict_data=as_dictionary(dictionary), max_window_size=1 << WINDOW_MOST
            )
            return reader.decompress(stored)
        except zstandard.ZstdError as error:
            raise damaged(self._name, f"frame {number}: {error}") from error

    def page_frames(self, numbers: Sequence[int]) -> Iterator[tuple[int, Pages]]:
        """(number, its pages) of frames, whose numbers must rise; slot ``i`` of the frame is row ``i``.

        Raises:
            ObjectCorrupt, KeyWrong: they are not what was written.
        """
        for begin in range(0, len(numbers), BATCH):
            batch = numbers[begin : begin + BATCH]
            yield from zip(batch, self.pages_of(batch, self.fetch(batch)), strict=True)

    def fetch(self, numbers: Sequence[int]) -> list[Stored]:
        """Frames of pages as they were compressed, checked and opened; at most some dozens. ``numbers`` must rise.

        May run in another thread than ``pages_of``, but only in one at a time.

        Raises:
            ObjectCorrupt, KeyWrong: they are not what was written.
        """
        for number in numbers:
            frame = self._frame(number)
            if frame.is_index or frame.raw > FRAME_PAGES * PAGE or frame.raw % PAGE:
                raise damaged(self._name, "a frame holds no pages")
        return list(self._stored(numbers))

    def pages_of(self, numbers: Sequence[int], stored: Sequence[Stored]) -> Iterator[Pages]:
        """The pages of each of the frames that ``fetch`` gave; raises ObjectCorrupt."""
        if not numbers:
            return
        sizes = [self._frame(number).raw for number in numbers]
        try:
            if [zstandard.frame_content_size(frame) for frame in stored] != sizes:
                raise damaged(self._name, "a frame has another size than its header says")
            raws = zstandard.ZstdDecompressor().multi_decompress_to_buffer(list(stored), threads=THREADS)
        except zstandard.ZstdError as error:
            raise damaged(self._name, str(error)) from error
        for position in range(len(numbers)):
            yield np.frombuffer(cast(memoryview, raws[position]), np.uint64).reshape(-1, PAGE // 8)

    def is_overlay(self, number: int) -> bool:
        """What a frame of pages holds are overlays (``Frame``)."""
        return self._frame(number).is_overlay

    def _frame(self, number: int) -> Frame:
        if not 0 <= number < len(self._frames):
            raise damaged(self._name, f"it has no frame {number}")
        return self._frames[number]

    def _stored(self, numbers: Sequence[int]) -> Iterator[bytes | memoryview]:
        """Frames as compressed, checked and opened; neighbours are read together."""
        for first, last in _stretches(numbers):
            begin, end = self._frames[first].offset, self._frames[last].offset + self._frames[last].stored
            data = memoryview(os.pread(self._file, end - begin, begin))
            for number in range(first, last + 1):
                frame = self._frames[number]
                stored = data[frame.offset - begin : frame.offset - begin + frame.stored]
                frame.check(self._name, number, stored)
                yield self._opened(number, bytes(stored)) if self._seals else stored

    def _opened(self, number: int, stored: bytes) -> bytes:
        seal, opened = open_with_any(self._seals, number, stored)
        self._seals = [seal]
        return opened


def _stretches(numbers: Iterable[int]) -> Iterator[tuple[int, int]]:
    """First and last of numbers that follow each other."""
    first = last = None
    for number in numbers:
        if first is not None and last is not None and number != last + 1:
            yield first, last
            first = None
        first, last = number if first is None else first, number
    if first is not None and last is not None:
        yield first, last


def _keys(packs: Packs, name: str) -> list[bytes]:
    """The keys to try, the likeliest first."""
    keys = packs.store_keys()
    if not keys:
        raise KeyMissing(
            f"pack {name[:12]} is sealed and there is no store key",
            cause=f"no `store.key` lies in the keys directory of RELIVE_HOME, and {STORE_KEY} is not set",
            remedy="give the key that the store was written with",
        )
    return keys
