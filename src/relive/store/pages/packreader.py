"""Reading frames of a pack: only bytes that match the pack's name are given."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TypeAlias, cast

import numpy as np
import zstandard

from relive.config import STORE_KEY
from relive.errors import KeyMissing, ObjectMissing
from relive.kernel.read_early import begin_reading
from relive.store.pages.blob_dictionary import WINDOW_MOST, as_dictionary
from relive.store.pages.dictionary import DICTIONARY_BYTES, DICTIONARY_MOST, Dictionary
from relive.store.pages.packfile import (
    COUNT,
    FRAME_PAGES,
    HEAD_SIZE,
    FrameKind,
    PackFrame,
    damaged,
    decode_head,
    decode_table,
    table_size,
)
from relive.store.pages.packs import Packs
from relive.store.pages.packwriter import BATCH, THREADS
from relive.store.pages.page_diff import WORDS, Flags, Numbers, Pages
from relive.store.pages.sealing import FrameSeal, open_with_any
from relive.store.pages.size import PAGE
from relive.store.pages.words import Words, decode_words

__all__ = ["Held", "HeldPages", "HeldWords", "PackReader", "Stored"]

Stored: TypeAlias = bytes | bytearray | memoryview
_MOST_RAW = 1 << 30  # [bytes] no frame is larger; asked before memory is taken for it
_KINDS = {  # of frames of pages
    FrameKind.OVERLAY,
    *(
        what | how
        for what in (FrameKind.PAGES, FrameKind.WORDS)
        for how in (
            FrameKind.PAGES,
            FrameKind.DELTA,
            FrameKind.DICTIONARY,
            FrameKind.DICTIONARY | FrameKind.DELTA,
        )
    ),
}


@dataclass(frozen=True, slots=True)
class HeldPages:
    """The pages of a frame, one row each: full ones, or XORs."""

    pages: Pages

    def __len__(self) -> int:
        return len(self.pages)

    def copy(self) -> HeldPages:
        """The same, which keeps nothing else in memory."""
        return HeldPages(self.pages.copy())


@dataclass(frozen=True, slots=True)
class HeldWords:
    """The changed words of so many pages.

    Attributes:
        at: where they lie, counted from the first word of the first page.
    """

    count: int
    at: Numbers
    words: Words

    def __len__(self) -> int:
        return self.count

    def copy(self) -> HeldWords:
        """The same, which keeps nothing else in memory."""
        return HeldWords(self.count, self.at, self.words.copy())

    def apply(self, rows: Numbers, pages: Pages, numbers: Numbers) -> None:
        """Put those of some of the pages into other pages: of ``rows[i]`` into ``pages[numbers[i]]``."""
        if len(np.unique(rows)) < len(rows):  # files may share pages
            found, mask = self.expanded()
            pages[numbers] = np.where(mask[rows], found[rows], pages[numbers])
            return
        target = np.full(self.count, -1, np.int64)
        target[rows] = numbers
        numbers = target[self.at // WORDS]
        wanted = numbers >= 0
        pages.reshape(-1)[numbers[wanted] * WORDS + self.at[wanted] % WORDS] = self.words[wanted]

    def expanded(self) -> tuple[Pages, Flags]:
        """Pages with these words, and which these are."""
        pages, mask = np.zeros((self.count, WORDS), np.uint64), np.zeros((self.count, WORDS), np.bool_)
        pages.reshape(-1)[self.at] = self.words
        mask.reshape(-1)[self.at] = True
        return pages, mask


Held: TypeAlias = HeldPages | HeldWords


class PackReader:
    """One pack, open for reading; a context manager. Only bytes that match the pack's name are given.

    Attributes:
        dictionary_of: gives what its frames of kind DELTA are compressed against, full pages (PAGES) or changed words (WORDS),
            where that is known: only the indexes of commits say it.
    """

    dictionary_of: Callable[[FrameKind], Dictionary] | None = None

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
            ) from None
        try:
            head, self._frames = self._read_header()
            pack_id, is_sealed = decode_head(name, head)
            # Which of them it was is found out with the first frame; the key is changed seldom.
            keys = _keys(packs, name) if is_sealed else []
            self._seals = [FrameSeal(key, pack_id, head) for key in keys]
            self._dictionaries: dict[FrameKind, Dictionary] = {}
            self._in_the_making: set[FrameKind] = set()
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
        return sum(frame.pages for frame in self._frames)

    def own_dictionary(self, what: FrameKind) -> Dictionary:
        """What its frames of kind DICTIONARY hold, those of full pages (PAGES) or those of changed words (WORDS), behind the
        dictionary that they continue.

        Raises:
            ObjectCorrupt, KeyWrong: it has none, or is damaged, or sealed with another key.
            ObjectMissing, KeyMissing: the pack that has what it continues is gone, or cannot be opened.
        """
        found = self._dictionaries.get(what)
        if found is None:
            numbers = self._dictionary_frames(what)
            frames = [self._frame(number) for number in numbers]
            if not 0 < sum(frame.pages for frame in frames) <= DICTIONARY_MOST:
                raise damaged(self._name, "it has no dictionary, or one that is too large")
            hows = {frame.kind & FrameKind.DELTA for frame in frames}
            if len(hows) > 1:
                raise damaged(self._name, "a part of its dictionary continues another, and a part does not")
            against = self._against(frames[0].kind)
            if what in self._in_the_making:
                raise damaged(self._name, "its dictionary continues itself")
            self._in_the_making.add(what)
            begin = b"" if against is None else self._dictionary_of(against).data
            if len(begin) + sum(frame.raw for frame in frames) > DICTIONARY_BYTES:
                raise damaged(self._name, "its dictionary is too large")
            raws = self._decompressed(frames, self.fetch(numbers), against)
            found = self._dictionaries[what] = Dictionary(b"".join([begin, *raws]))
            self._in_the_making.discard(what)
        return found

    def dictionary_slots(self, what: FrameKind) -> Numbers:
        """The slots of the pages that these frames hold something of."""
        slots = [
            number * FRAME_PAGES + np.arange(self._frames[number].pages)
            for number in self._dictionary_frames(what)
        ]
        return np.concatenate([np.empty(0, np.int64), *slots])

    def _dictionary_frames(self, what: FrameKind) -> list[int]:
        wanted = what | FrameKind.DICTIONARY
        return [
            number for number, frame in enumerate(self._frames) if frame.kind & ~FrameKind.DELTA == wanted
        ]

    def _read_header(self) -> tuple[bytes, list[PackFrame]]:
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
                dict_data=as_dictionary(dictionary or b""), max_window_size=1 << WINDOW_MOST
            )
            return reader.decompress(stored)
        except zstandard.ZstdError as error:
            raise damaged(self._name, f"frame {number}: {error}") from error

    def page_frames(self, numbers: Sequence[int]) -> Iterator[tuple[int, Held]]:
        """(number, what it holds) of frames, whose numbers must rise; slot ``i`` of the frame is row ``i``.

        Raises:
            ObjectCorrupt, KeyWrong: they are not what was written.
        """
        for begin in range(0, len(numbers), BATCH):
            batch = numbers[begin : begin + BATCH]
            yield from zip(batch, self.pages_of(batch, self.fetch(batch)), strict=True)

    def expect(self, numbers: Sequence[int]) -> None:
        """Have the kernel begin to read frames that will be fetched.

        Args:
            numbers: must rise; those that it does not have are left out.
        """
        there = [number for number in numbers if number < len(self._frames)]
        for first, last in _stretches(there):
            begin, end = self._frames[first].offset, self._frames[last].offset + self._frames[last].stored
            begin_reading(self._file, begin, end)

    def fetch(self, numbers: Sequence[int]) -> list[Stored]:
        """Frames of pages as they were compressed, checked and opened; at most some dozens. ``numbers`` must rise.

        May run in several threads at once, also beside ``pages_of``: it reads by pread(2), and all that it changes is which of
        the store's keys is tried first.

        Raises:
            ObjectCorrupt, KeyWrong: they are not what was written.
        """
        for number in numbers:
            if not _can_be_pages(self._frame(number)):
                raise damaged(self._name, "a frame holds no pages")
        return list(self._stored(numbers))

    def pages_of(self, numbers: Sequence[int], stored: Sequence[Stored]) -> Iterator[Held]:
        """What each of the frames holds that ``fetch`` gave.

        Raises:
            ObjectCorrupt: they are not what was written, or it is not known what they are compressed against.
            ObjectMissing, KeyMissing, KeyWrong: another pack, which has the dictionary, is gone, or cannot be opened.
        """
        position = 0
        for against, group in groupby(numbers, lambda number: self._against(self.kind(number))):
            frames = [self._frame(number) for number in group]
            part = stored[position : position + len(frames)]
            position += len(frames)
            for frame, raw in zip(frames, self._decompressed(frames, part, against), strict=True):
                yield self._held(frame, raw)

    @staticmethod
    def _against(kind: FrameKind) -> FrameKind | None:
        """The kind of dictionary that a frame of that kind needs; None if it needs none."""
        return kind & FrameKind.WORDS if kind & FrameKind.DELTA else None

    def _decompressed(
        self, frames: Sequence[PackFrame], stored: Sequence[Stored], against: FrameKind | None
    ) -> list[memoryview]:
        decompressor = zstandard.ZstdDecompressor() if against is None else self._decompressor(against)
        try:
            if [zstandard.frame_content_size(frame) for frame in stored] != [frame.raw for frame in frames]:
                raise damaged(self._name, "a frame has another size than its header says")
            found = decompressor.multi_decompress_to_buffer(list(stored), threads=THREADS)
        except zstandard.ZstdError as error:
            raise damaged(self._name, str(error)) from error
        return [cast(memoryview, found[position]) for position in range(len(frames))]

    def _decompressor(self, against: FrameKind) -> zstandard.ZstdDecompressor:
        return self._dictionary_of(against).decompressor

    def _dictionary_of(self, against: FrameKind) -> Dictionary:
        if self.dictionary_of is None:
            raise damaged(self._name, "nothing says what a frame of it is compressed against")
        return self.dictionary_of(against)

    def _held(self, frame: PackFrame, raw: memoryview) -> Held:
        if frame.kind & FrameKind.WORDS:
            try:
                return HeldWords(frame.pages, *decode_words(raw, frame.pages))
            except ValueError as error:
                raise damaged(self._name, str(error)) from error
        pages = np.frombuffer(raw, np.uint64)
        if frame.kind == FrameKind.OVERLAY:
            at = np.flatnonzero(pages)
            return HeldWords(frame.pages, at, pages[at])
        return HeldPages(pages.reshape(-1, WORDS))

    def kind(self, number: int) -> FrameKind:
        """What a frame is; raises ObjectCorrupt where there is none of that number."""
        return self._frame(number).kind

    def _frame(self, number: int) -> PackFrame:
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


def _can_be_pages(frame: PackFrame) -> bool:
    if frame.kind not in _KINDS:
        return False
    if frame.kind & FrameKind.WORDS:
        return frame.raw <= FRAME_PAGES * (PAGE + WORDS // 8)
    return frame.raw <= FRAME_PAGES * PAGE and frame.raw % PAGE == 0


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
