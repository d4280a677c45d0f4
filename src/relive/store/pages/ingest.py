"""Taking a commit's pages in: what is unchanged is referred to, what changed a little is kept as XOR, the rest full.

1. Pages are compared with those at the same addresses in the parent commit.
2. Of those that changed, all-zero ones are noted and not kept; one of which at most half of the words differ from its last
   full version goes to the pack as XOR, or as overlay if more than some words do: where a text took the place of another, the new
   one compresses better than the XOR of both. The others follow, full.
3. Contents of files follow (``contents``).
4. The index (tables, small images, the list of files) closes the pack. Every 32nd commit is a key commit: its index stands alone,
   nothing of it is XOR, and what lies in packs of which little is used is kept anew (``fold``). So a restore reads few packs,
   however long the series is.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from relive.errors import ObjectCorrupt, ObjectMissing
from relive.model.commit import Layer
from relive.store.pages.bases import Bases
from relive.store.pages.contents import REPLACED, SPARSE, ContentIntake, NewContent
from relive.store.pages.differ import Flags, Numbers, Pages, changed_pages, differing_words
from relive.store.pages.fold import numbered_anew, packs_to_fold, packs_used
from relive.store.pages.last import KnownCommit, KnownContents, KnownFile
from relive.store.pages.layout import OpenPacks
from relive.store.pages.packreader import PackReader
from relive.store.pages.packs import Packs
from relive.store.pages.packwriter import PackWriter, compress_blob
from relive.store.pages.placement import FramePlace
from relive.store.pages.runs import PageFile, match
from relive.store.pages.table import NOWHERE, Index, Table, encode_index, pack_of, place

__all__ = ["KEY_EVERY", "CommitIntake", "TakenPages"]

KEY_EVERY = 32  # [commits] so many packs at most lie between a commit and its key commit
_LARGE = 1 << 14  # [bytes] an index that is smaller costs little, whatever it is compressed against
_WORTH = 4  # times its size as a difference, at most, an index may have alone
_CONTENTS = "contents"  # stands for the table of contents among those of page files
_CHUNK = 128  # [pages] looked at together, so that they stay in the processor's cache from the first look to the last


@dataclass(frozen=True, slots=True)
class TakenPages:
    """A commit's pages, durable in packs but not yet referred to by a placement.

    Attributes:
        known: all that a placement has to say, and what the next commit is compared with.
        index: where the commit's own index lies.
        stored: bytes of the new pack.
    """

    known: KnownCommit
    index: FramePlace
    stored: int


class CommitIntake:
    """A commit on its way into its pack. ``finish`` or ``discard`` must be called."""

    def __init__(self, parent: KnownCommit | None, packs: Packs) -> None:
        """Begin a pack.

        Args:
            parent: the commit to compare with; None for the first of a series.
        """
        # The commit that this one goes on from; None for a key commit, though its parent is still compared with.
        self._onward = parent if parent is not None and parent.since_key + 1 < KEY_EVERY else None
        self._parent = parent
        self._packs = packs
        self._writer = PackWriter(packs)
        self._bases = self._onward.bases if self._onward is not None else Bases(packs.incoming)
        self._works: list[_Work] = []
        self._contents = KnownContents.none()

    @property
    def parent(self) -> KnownCommit | None:
        """The commit that it is compared with."""
        return self._parent

    def take_pages(self, files: Sequence[tuple[PageFile, Pages]]) -> None:
        """Write what is new of page files to the pack."""
        tables, others = [], []
        if self._parent is not None:
            tables = [file.table for file in self._parent.files.values()]
            others = [self._parent.contents.contents.table]
        intake = _Intake(
            self._parent,
            self._writer,
            self._bases,
            is_key=self._onward is None,
            fold=self._folded(tables, others),
        )
        for file, pages in files:
            intake.look_at(file, pages)
        self._writer.end_frame()
        intake.keep_overlays()
        intake.keep_full()
        self._works = intake.works

    def take_contents(
        self, layers: Sequence[Layer], wanted: Sequence[str], new: Mapping[str, NewContent]
    ) -> None:
        """Write what is new of the contents of files to the pack.

        Args:
            layers: that name them.
            wanted: their names; each is one of the parent's or of ``new``.
        """
        known = self._parent.contents if self._parent is not None else self._contents
        names = self._parent.packs if self._parent is not None else []
        tables = [file.table for file in self._parent.files.values()] if self._parent is not None else []
        with OpenPacks(names, self._packs) as reader:
            intake = ContentIntake(known.contents, known.prints, reader, self._writer, len(names))
            contents = intake.take(
                wanted,
                new,
                is_key=self._onward is None,
                fold=self._folded([known.contents.table], tables),
            )
        prints = {name: content.prints for name, content in new.items()}
        prints = {name: prints.get(name) or known.prints.get(name, b"") for name in contents.names}
        kept = {name: found for name, found in prints.items() if found}
        self._contents = KnownContents(contents, kept, layers)

    def finish(self, bundle: bytes, listing: bytes) -> TakenPages:
        """Write the index and make the pack durable.

        Args:
            bundle: the small images.
            listing: what the layers are.
        """
        onward, writer = self._onward, self._writer
        names: list[str | None] = [*(self._parent.packs if self._parent is not None else []), ""]
        tables = {work.file.name: work.table for work in self._works} | {
            _CONTENTS: self._contents.contents.table
        }
        if onward is None:
            keep = sorted(packs_used(tables.values()) | {len(names) - 1})
            names, tables = [names[number] for number in keep], numbered_anew(tables, keep)
        contents = replace(self._contents.contents, table=tables.pop(_CONTENTS))
        data = encode_index(Index(bundle, tables, contents, listing))
        base = onward.key_bytes if onward is not None else None
        compressed = compress_blob(data, base)
        if base is not None and len(compressed) >= _LARGE:
            # So much has changed since that one that a fresh base saves more, in what follows, than it costs here.
            alone = compress_blob(data, None)
            if len(alone) < _WORTH * len(compressed):
                base, compressed = None, alone
        frame = writer.add_compressed(compressed, len(data))
        names[-1] = writer.finish()
        index = FramePlace(len(names) - 1, frame)
        files_known = {
            work.file.key: KnownFile(work.file.runs, work.pages, tables[work.file.name], work.bases)
            for work in self._works
        }
        key_index = onward.key_index if onward is not None and base is not None else index
        used = packs_used([*tables.values(), contents.table]) | {index.pack, key_index.pack}
        known = KnownCommit(
            files=files_known,
            contents=replace(self._contents, contents=contents),
            bases=self._bases,
            packs=[name if number in used else None for number, name in enumerate(names)],
            key_index=key_index,
            key_bytes=base if base is not None else data,
            since_key=onward.since_key + 1 if onward is not None else 0,
        )
        return TakenPages(known, index, writer.size)

    def discard(self) -> None:
        """Throw the pack away, unless it is finished."""
        self._writer.discard()

    def _folded(self, tables: Sequence[Table], others: Sequence[Table]) -> Numbers:
        """Packs of the parent that a key commit keeps anew; none for another commit."""
        parent = self._parent
        if parent is None or self._onward is not None:
            return np.empty(0, np.int64)

        def size(position: int) -> int:
            name = parent.packs[position]
            # One that is gone or damaged is folded too: its pages are known, and so the series heals.
            with contextlib.suppress(ObjectMissing, ObjectCorrupt):
                if name is not None:
                    with PackReader(self._packs, name) as pack:
                        return pack.pages
            return 0

        return packs_to_fold(tables, others, size)


@dataclass(slots=True)
class _Work:
    """One page file on its way in; ``table`` and ``bases`` are filled step by step.

    Attributes:
        full, overlaid: numbers of pages that are still to be kept so.
    """

    file: PageFile
    pages: Pages
    table: Table
    bases: Numbers
    full: list[Numbers]
    overlaid: list[Numbers]


class _Intake:
    """The steps on all page files of one commit."""

    def __init__(
        self, parent: KnownCommit | None, writer: PackWriter, bases: Bases, *, is_key: bool, fold: Numbers
    ) -> None:
        self._parent = parent
        self._writer = writer
        self._is_key = is_key
        self._pack = len(parent.packs) if parent is not None else 0
        self._fold = fold
        self._bases = bases
        self.works: list[_Work] = []

    def look_at(self, file: PageFile, pages: Pages) -> None:
        """Compare a page file, keep what can be kept as XOR, note what has to be kept full."""
        count = len(pages)
        work = _Work(file, pages, Table.of_zeros(count), np.full(count, NOWHERE, np.int64), [], [])
        self.works.append(work)
        before = self._parent.files.get(file.key) if self._parent is not None else None
        there = np.full(count, NOWHERE, np.int64)  # position of the same page in the parent
        changed: Flags = np.ones(count, np.bool_)
        if before is not None:
            matches = match(file.runs, before.runs)
            changed = changed_pages(pages, before.pages, matches)
            for ours, theirs, length in matches:
                there[ours : ours + length] = np.arange(theirs, theirs + length)
            self._inherit(work, before, there)
        if self._is_key:
            changed |= work.table.xor != NOWHERE
            changed |= np.isin(pack_of(work.table.full), self._fold)
        wanted = np.flatnonzero(changed)
        for begin in range(0, len(wanted), _CHUNK):
            self._look_at_chunk(work, before, there, wanted[begin : begin + _CHUNK])

    @staticmethod
    def _inherit(work: _Work, before: KnownFile, there: Numbers) -> None:
        found = there != NOWHERE
        at = there[found]
        work.table.full[found] = before.table.full[at]
        work.table.xor[found] = before.table.xor[at]
        work.bases[found] = before.bases[at]

    def _look_at_chunk(self, work: _Work, before: KnownFile | None, there: Numbers, numbers: Numbers) -> None:
        pages = work.pages[numbers]
        has_content = np.asarray(pages.any(axis=1))
        work.table.full[numbers[~has_content]] = NOWHERE
        work.table.xor[numbers[~has_content]] = NOWHERE
        rest, pages = _only(has_content, numbers, pages)
        if before is not None and not self._is_key:
            has_base = work.table.full[rest] != NOWHERE
            if has_base.any():
                is_kept = np.zeros(len(rest), np.bool_)
                is_kept[has_base] = self._keep_xor(work, before, there, *_only(has_base, rest, pages))
                rest = rest[~is_kept]
        work.full.append(rest)

    def _keep_xor(
        self, work: _Work, before: KnownFile, there: Numbers, numbers: Numbers, pages: Pages
    ) -> Flags:
        """Keep those pages as XOR that are worth it; returns for each whether it was."""
        xored = before.pages[there[numbers]]  # the bases at first
        has_xor = work.table.xor[numbers] != NOWHERE
        xored[has_xor] = self._bases.get(work.bases[numbers[has_xor]])
        np.bitwise_xor(xored, pages, out=xored)
        words = differing_words(xored)
        is_sparse = words <= SPARSE
        work.table.xor[numbers[is_sparse]] = NOWHERE  # of those that are as their last full version again
        fresh = numbers[is_sparse & ~has_xor]
        work.bases[fresh] = self._bases.add(before.pages[there[fresh]])
        # In an overlay zero means that the word is as it was.
        is_replaced = is_sparse & (words > REPLACED) & ~np.any((xored != 0) & (pages == 0), axis=1)
        work.overlaid.append(numbers[is_replaced])
        some, xored = _only(is_sparse & (words > 0) & ~is_replaced, numbers, xored)
        work.table.xor[some] = place(self._pack, self._writer.add_pages(xored))
        return is_sparse

    def keep_overlays(self) -> None:
        """Write the pages that were noted to be kept as overlay."""
        for work in self.works:
            wanted = np.concatenate([np.empty(0, np.int64), *work.overlaid])
            for begin in range(0, len(wanted), _CHUNK):
                numbers = wanted[begin : begin + _CHUNK]
                pages = work.pages[numbers]
                pages[pages == self._bases.get(work.bases[numbers])] = 0
                slots = self._writer.add_pages(pages, is_overlay=True)
                work.table.xor[numbers] = place(self._pack, slots)

    def keep_full(self) -> None:
        """Write the pages that were noted to be kept full."""
        for work in self.works:
            wanted = np.concatenate([np.empty(0, np.int64), *work.full])
            for begin in range(0, len(wanted), _CHUNK):
                numbers = wanted[begin : begin + _CHUNK]
                slots = self._writer.add_pages(work.pages[numbers])
                work.table.full[numbers] = place(self._pack, slots)
                work.table.xor[numbers] = NOWHERE
        self._writer.end_frame()


def _only(wanted: Flags, numbers: Numbers, pages: Pages) -> tuple[Numbers, Pages]:
    """Those of some pages that are wanted; copied only if not all of them are."""
    return (numbers, pages) if wanted.all() else (numbers[wanted], pages[wanted])
