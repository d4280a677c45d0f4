"""Some pages of a commit, made together: which frames they need, reading those ahead, full versions, changes over them.

Parts of a page file are made one after the other (``PageSource.batches``). A frame that reaches over the border of two is
decompressed once: the later one takes it over from the earlier.

Pages are gone through frame by frame, not page by page: a frame is read, checked, decompressed and handed out once, and numpy
moves all of its pages at a time. Full versions come first, changes over them second, since a change is the XOR with, or words
of, the full one.

Invariant: a batch is used up (``full``, ``apply_xor``) before the next one, which takes ``last`` over; only ``fetch`` may run
ahead, in one other thread. Danger: what is handed over is a view of a buffer of many frames; one that is kept is copied, else
it keeps them all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from relive.errors import ObjectCorrupt
from relive.store.pages.packfile import FRAME_PAGES
from relive.store.pages.packreader import Held, HeldWords, PackReader, Stored
from relive.store.pages.packwriter import BATCH
from relive.store.pages.page_diff import WORDS, Numbers, Pages
from relive.store.pages.table import NOWHERE, PageTable, pack_of, slot_of

__all__ = ["PageBatch", "untrue"]

_Put = Callable[[Numbers, Held, Numbers], None]


@dataclass(slots=True)
class _Lot:
    """The frames that are needed of one pack, in order.

    Attributes:
        numbers, rows: for each frame which pages of the batch lie in it, and at which of its rows.
        ahead: the first frames, when they have been read.
        is_begun: the first frame is the last of the batch before, which has it.
        last: what the last frame holds, when it has been used.
    """

    reader: PackReader
    frames: list[int]
    numbers: list[Numbers]
    rows: list[Numbers]
    ahead: Sequence[Stored] = ()
    is_begun: bool = False
    last: Held | None = None

    def expect(self) -> None:
        self.reader.expect(self.frames)

    def fetch(self) -> None:
        self.ahead = self.reader.fetch(self._batch(0))

    def held(self, begun: Held | None) -> Iterator[Held]:
        """What each frame holds; ``begun`` is that of the first where the batch before has it."""
        if begun is not None:
            self.last = begun
            yield begun
        for first in range(0, len(self.frames), BATCH):
            batch = self._batch(first)
            stored = self.ahead if first == 0 and self.ahead else self.reader.fetch(batch)
            self.ahead = ()
            for found in self.reader.pages_of(batch, stored):
                self.last = found
                yield found
        if self.last is not None:
            self.last = self.last.copy()  # else it would keep those of its batch, too

    def _batch(self, first: int) -> list[int]:
        return self.frames[self.is_begun :][first : first + BATCH]


class PageBatch:
    """To be used in this order: ``expect``, ``fetch``, ``full``, ``apply_xor``, each once; the first two may be left out."""

    def __init__(
        self, table: PageTable, reader: Callable[[int], PackReader], before: PageBatch | None = None
    ) -> None:
        """Plan.

        Args:
            table: of these pages; raises ObjectCorrupt and so on as ``reader``, which opens a pack by its position.
            before: the pages before these, which is used up first.
        """
        self.table = table
        self._full = _lots(table.full, reader)
        self._xor = _lots(table.xor, reader)
        self._full_before = before._full if before is not None else {}
        self._xor_before = before._xor if before is not None else {}
        for lots, others in ((self._full, self._full_before), (self._xor, self._xor_before)):
            for pack in lots.keys() & others.keys():
                lots[pack].is_begun = others[pack].frames[-1] == lots[pack].frames[0]

    def expect(self) -> None:
        """Have the disk read all frames at once, where it does not wait for one before it gets the next."""
        for lot in [*self._full.values(), *self._xor.values()]:
            lot.expect()

    def fetch(self) -> PageBatch:
        """Read and check the bytes of the frames, though not more of them than fit into memory; in any thread.

        Raises:
            ObjectCorrupt, KeyWrong: a pack is damaged or sealed with another key.
        """
        for lot in [*self._full.values(), *self._xor.values()]:
            lot.fetch()
        return self

    def full(self) -> Pages:
        """The full versions, one row a page; raises as ``fetch``."""
        pages = np.empty((len(self.table.full), WORDS), np.uint64)
        pages[self.table.full == NOWHERE] = 0

        def put(numbers: Numbers, found: Held, rows: Numbers) -> None:
            if isinstance(found, HeldWords):
                raise untrue("it names changed words as a full version")
            pages[_span(numbers)] = found.pages[_span(rows)]

        _hand_over(self._full, self._full_before, put)
        return pages

    def apply_xor(self, pages: Pages) -> Pages:
        """Turn the full versions into the commit's pages; raises as ``fetch``."""

        def put(numbers: Numbers, found: Held, rows: Numbers) -> None:
            if isinstance(found, HeldWords):
                found.apply(rows, pages, numbers)
            else:
                pages[_span(numbers)] ^= found.pages[_span(rows)]

        _hand_over(self._xor, self._xor_before, put)
        self._full_before = self._xor_before = {}
        return pages


def _lots(places: Numbers, reader: Callable[[int], PackReader]) -> dict[int, _Lot]:
    """By position of the pack."""
    numbers = np.flatnonzero(places != NOWHERE)
    wanted = places[numbers]
    if np.any(wanted[1:] < wanted[:-1]):
        order = np.argsort(wanted, kind="stable")
        numbers, wanted = numbers[order], wanted[order]
    # Frames of one pack follow those of another: 2**32 is a multiple of what one holds.
    frames, begins = np.unique(wanted // FRAME_PAGES, return_index=True)
    parts, rows = np.split(numbers, begins[1:]), np.split(slot_of(wanted) % FRAME_PAGES, begins[1:])
    packs = pack_of(frames * FRAME_PAGES)
    found: dict[int, _Lot] = {}
    for pack in np.unique(packs).tolist():
        begin, end = np.searchsorted(packs, [pack, pack + 1]).tolist()
        in_pack = (slot_of(frames[begin:end] * FRAME_PAGES) // FRAME_PAGES).tolist()
        found[pack] = _Lot(reader(pack), in_pack, parts[begin:end], rows[begin:end])
    return found


def _hand_over(lots: dict[int, _Lot], before: dict[int, _Lot], put: _Put) -> None:
    """Hand the pages of all frames over, with their numbers in the batch."""
    for pack, lot in lots.items():
        begun = before[pack].last if lot.is_begun else None
        for numbers, rows, found in zip(lot.numbers, lot.rows, lot.held(begun), strict=True):
            if rows[-1] >= len(found):
                raise untrue("it names a slot that its pack does not have")
            put(numbers, found, rows)


def _span(numbers: Numbers) -> Numbers | slice:
    """Numbers that do not fall, as a slice where they follow each other: taking and setting that copies nothing twice."""
    first, last = int(numbers[0]), int(numbers[-1])
    # One may stand there twice: files share pages.
    follows = last - first + 1 == len(numbers) and bool(np.all(numbers[1:] > numbers[:-1]))
    return slice(first, last + 1) if follows else numbers


def untrue(cause: str) -> ObjectCorrupt:
    """The error of an index that does not fit what it speaks of."""
    return ObjectCorrupt("the commit's index is damaged", cause=cause)
