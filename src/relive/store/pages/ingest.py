"""Taking a commit's pages in: what is unchanged is referred to, of what changed a little the words are kept, the rest full.

1. Pages are compared with those at the same addresses in the parent commit.
2. Of those that changed, all-zero ones are noted and not kept; of one of which at most half of the words differ from its last
   full version, these words go to the pack. The others follow, full.
3. Full pages are compressed against those of an earlier commit of the series, if that helps (``generation``): what a service has
   freed and used anew, or reads again and again into caches, comes back at other addresses.
4. Contents of files follow (``contents``).
5. The index (tables, small images, the list of files) closes the pack. Every 32nd commit is a key commit: its index stands alone,
   all changed words are its own, and what lies in packs of which little is used, or which need others, is kept anew.
   So a restore reads few packs, however long the series is.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from relive.errors import ObjectCorrupt, ObjectMissing
from relive.model.advance import Advance
from relive.model.commit import Layer
from relive.store.atomic_io import FreshFile
from relive.store.pages.blob_dictionary import BlobDictionary
from relive.store.pages.compaction import (
    continued,
    dictionaries_used,
    numbered_anew,
    packs_in,
    packs_to_fold,
    packs_used,
)
from relive.store.pages.contents import SPARSE, ContentIntake, NewContent
from relive.store.pages.dictionary import DICTIONARY_MOST, NODE_MOST
from relive.store.pages.dictionary_policy import Generation, begun, may_begin, may_use
from relive.store.pages.held_pages import HeldPages, changed_words, note_changed
from relive.store.pages.materialize import OpenPacks
from relive.store.pages.nodes import is_node, leans_on
from relive.store.pages.packfile import FrameKind
from relive.store.pages.packreader import PackReader
from relive.store.pages.packs import Packs
from relive.store.pages.packwriter import PackWriter
from relive.store.pages.page_diff import WORDS, Flags, Numbers, Pages
from relive.store.pages.parent_cache import KnownCommit, KnownContents, KnownFile, KnownIndex
from relive.store.pages.placement import FramePlace
from relive.store.pages.runs import PageFile, is_all_of_both, match
from relive.store.pages.similarity import novel_pages
from relive.store.pages.table import (
    NOWHERE,
    Dictionaries,
    PackIndex,
    PageTable,
    encode_index,
    pack_of,
    slot_places,
)
from relive.store.pages.xor_bases import XorBases

__all__ = ["KEY_EVERY", "CommitIntake", "IngestedPages"]

KEY_EVERY = 32  # [commits] so many packs at most lie between a commit and its key commit
# The dictionary in use from now on, and the position of the pack whose dictionary is needed for what was kept, None if none is.
_Kept = tuple[Generation | None, int | None]
_CONTENTS = "contents"  # stands for the table of contents among those of page files
_CHUNK = 128  # [pages] copied and compressed together, so that they stay in the processor's cache


@dataclass(frozen=True, slots=True)
class IngestedPages:
    """A commit's pages, in packs but not yet referred to by a placement.

    Attributes:
        pack: the new one, complete and not yet at its place, and that.
        known: all that a placement has to say, and what the next commit is compared with.
        index: where the commit's own index lies; bases: what it is compressed against, and that.
    """

    pack: tuple[FreshFile, Path]
    known: KnownCommit
    index: FramePlace
    bases: Sequence[KnownIndex]


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
        self._bases = self._onward.bases if self._onward is not None else XorBases(packs.incoming)
        self._works: list[_Work] = []
        self._contents = KnownContents.none()
        self._dictionaries = dict(parent.dictionaries) if parent is not None else {}
        self._generations = self._readable_generations()

    @property
    def parent(self) -> KnownCommit | None:
        """The commit that it is compared with."""
        return self._parent

    def before(self, file: PageFile) -> HeldPages | None:
        """The pages of the same file in the commit that it is compared with; None: there is none."""
        known = self._parent.files.get(file.key) if self._parent is not None else None
        return known.pages if known is not None else None

    def ingest_pages(self, files: Sequence[tuple[PageFile, HeldPages]]) -> None:
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
        intake.begin_words(self._generations.get(FrameKind.WORDS))
        for file, pages in files:
            intake.look_at(file, pages)
        kept = {
            FrameKind.WORDS: intake.end_words(),
            FrameKind.PAGES: intake.write_full(self._generations.get(FrameKind.PAGES)),
        }
        for what, (generation, against) in kept.items():
            if generation is not None:
                self._generations[what] = generation
            if against is not None:
                self._dictionaries[intake.pack, what] = against
        self._works = intake.works

    def ingest_contents(
        self,
        layers: Sequence[Layer],
        wanted: Sequence[str],
        new: Mapping[str, NewContent],
        advance: Advance,
    ) -> None:
        """Write what is new of the contents of files to the pack.

        Args:
            layers: that name them.
            wanted: their names; each is one of the parent's or of ``new``.
            advance: is told how far it is.
        """
        known = self._parent.contents if self._parent is not None else self._contents
        names = self._parent.packs if self._parent is not None else []
        tables = [file.table for file in self._parent.files.values()] if self._parent is not None else []
        with OpenPacks(names, self._packs, self._dictionaries) as reader:
            intake = ContentIntake(known.contents, known.prints, reader, self._writer, len(names))
            contents = intake.ingest(
                wanted,
                new,
                is_key=self._onward is None,
                fold=self._folded([known.contents.table], tables),
                advance=advance,
            )
        prints = {name: content.prints for name, content in new.items()}
        prints = {name: prints.get(name) or known.prints.get(name, b"") for name in contents.names}
        kept = {name: found for name, found in prints.items() if found}
        self._contents = KnownContents.of(contents, kept, layers)

    def finish(self, bundle: bytes, listing: bytes) -> IngestedPages:
        """Write the index, with which the pack is complete.

        Args:
            bundle: the small images.
            listing: what the layers are.
        """
        onward, writer = self._onward, self._writer
        names: list[str | None] = [*(self._parent.packs if self._parent is not None else []), ""]
        tables = {work.file.name: work.table for work in self._works} | {
            _CONTENTS: self._contents.contents.table
        }
        packs = {name: packs_in(table) for name, table in tables.items()}
        of_memory = [packs[work.file.name] for work in self._works]
        dictionaries = dictionaries_used(of_memory, self._dictionaries)
        dictionaries |= continued(self._going_on(), self._dictionaries)
        leaned_on = self._leaned_on(dictionaries)
        if onward is None:
            keep = sorted(packs_used(packs.values()) | leaned_on | {len(names) - 1})
            names, tables = [names[number] for number in keep], numbered_anew(tables, keep)
            packs = {name: packs_in(table) for name, table in tables.items()}
            dictionaries = {
                (keep.index(user), what): keep.index(pack) for (user, what), pack in dictionaries.items()
            }
            leaned_on = {keep.index(pack) for pack in leaned_on}
            self._generations = {
                what: replace(one, nodes=[replace(node, pack=keep.index(node.pack)) for node in one.nodes])
                for what, one in self._generations.items()
                if all(node.pack in keep for node in one.nodes)
            }
        contents = replace(self._contents.contents, table=tables.pop(_CONTENTS))
        data = encode_index(PackIndex(bundle, tables, contents, listing, dictionaries))
        number = onward.since_key + 1 if onward is not None else 0
        bases = (
            [one for one in onward.indexes if one.number <= leans_on(number)] if onward is not None else []
        )
        frame = writer.add_blob(data, bases[-1].dictionary if bases else None)
        names[-1] = name = writer.complete()
        index = FramePlace(len(names) - 1, frame)
        for one in bases[:-1]:
            one.dictionary.release_memory()
        indexes = [*bases, KnownIndex(number, index, BlobDictionary(data))] if is_node(number) else bases
        files_known = {
            work.file.key: KnownFile(work.file.runs, work.pages, tables[work.file.name], work.bases)
            for work in self._works
        }
        used = packs_used(packs.values()) | leaned_on
        used |= {index.pack, *(one.place.pack for one in bases)}
        known = KnownCommit(
            files=files_known,
            contents=replace(self._contents, contents=contents),
            bases=self._bases,
            packs=[name if number in used else None for number, name in enumerate(names)],
            indexes=indexes,
            since_key=number,
            dictionaries=dictionaries,
            generations=self._generations,
        )
        return IngestedPages(writer.made(name), known, index, bases)

    def discard(self) -> None:
        """Throw the pack away, unless it is at its place."""
        self._writer.discard()

    def _readable_generations(self) -> dict[FrameKind, Generation]:
        """The dictionaries in use. A key commit reads them once more: so the series heals where one is gone or damaged."""
        parent = self._parent
        if parent is None or self._onward is not None:
            return dict(parent.generations) if parent is not None else {}
        found = {}
        with OpenPacks(parent.packs, self._packs, parent.dictionaries) as reader:
            for what, one in parent.generations.items():
                newest = one.nodes[-1]
                with contextlib.suppress(ObjectMissing, ObjectCorrupt):
                    if reader.own_dictionary(newest.pack, what).data == newest.dictionary.data:
                        found[what] = one
        return found

    def _leaned_on(self, dictionaries: Dictionaries) -> set[int]:
        """Packs whose dictionaries are needed, or will be by the commits that follow."""
        return {pack for pack, _ in self._going_on()} | set(dictionaries.values())

    def _going_on(self) -> list[tuple[int, FrameKind]]:
        """Packs that have the dictionaries in use, and of what."""
        return [
            (node.pack, what)
            for what, one in self._generations.items()
            if may_use(one, 1)
            for node in one.nodes
        ]

    def _folded(self, tables: Sequence[PageTable], others: Sequence[PageTable]) -> Numbers:
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

        return packs_to_fold(tables, others, size, parent.dictionaries)


@dataclass(slots=True)
class _Work:
    """One page file on its way in; ``table`` and ``bases`` are filled step by step.

    Attributes:
        full: numbers of pages that are still to be kept so.
    """

    file: PageFile
    pages: HeldPages
    table: PageTable
    bases: Numbers
    full: list[Numbers]


class _Intake:
    """The steps on all page files of one commit."""

    def __init__(
        self, parent: KnownCommit | None, writer: PackWriter, bases: XorBases, *, is_key: bool, fold: Numbers
    ) -> None:
        self._parent = parent
        self._writer = writer
        self._is_key = is_key
        self._fold = fold
        self._bases = bases
        self.pack = len(parent.packs) if parent is not None else 0
        self.works: list[_Work] = []
        self._words: Generation | None = None
        self._kind_of_words, self._pages_of_words = FrameKind.WORDS, 0

    def begin_words(self, generation: Generation | None) -> None:
        """Say which dictionary of changed words is in use."""
        self._words = generation
        if generation is not None and may_use(generation, 1):
            self._writer.compress_against(FrameKind.WORDS, generation.against.dictionary)
            self._kind_of_words |= FrameKind.DELTA | (
                FrameKind.DICTIONARY if generation.adds_node else FrameKind.PAGES
            )
        elif may_begin(generation, DICTIONARY_MOST):
            self._kind_of_words |= FrameKind.DICTIONARY

    def end_words(self) -> _Kept:
        """The last of the changed words is there."""
        self._writer.end_frame()
        words, count = self._words, self._pages_of_words
        if words is not None and self._kind_of_words & FrameKind.DELTA and count:
            return self._after(words, FrameKind.WORDS, 0), words.against.pack
        if self._kind_of_words & FrameKind.DICTIONARY and may_begin(words, count):
            return begun(self.pack, self._writer.dictionary(FrameKind.WORDS), after=words), None
        return words.unused() if words is not None else None, None

    def _after(self, generation: Generation, what: FrameKind, raw: int) -> Generation:
        """When so many bytes, decompressed, had been written, what is DELTA began."""
        if generation.adds_node:
            return generation.with_node(self.pack, self._writer.dictionary(what).data)
        if self._is_key:
            return generation  # what is kept anew is not what the service changed
        return generation.after(self._writer.raw - raw, lambda: self._writer.sample(what))

    def look_at(self, file: PageFile, pages: HeldPages) -> None:
        """Compare a page file, keep what can be kept as changed words, note what has to be kept full."""
        count = len(pages)
        work = _Work(file, pages, PageTable.of_zeros(count), np.full(count, NOWHERE, np.int64), [])
        self.works.append(work)
        before = self._parent.files.get(file.key) if self._parent is not None else None
        there = np.full(count, NOWHERE, np.int64)  # position of the same page in the parent
        changed: Flags = np.ones(count, np.bool_)
        if before is not None:
            matches = match(file.runs, before.runs)
            for ours, theirs, length in matches:
                there[ours : ours + length] = np.arange(theirs, theirs + length)
            note_changed(pages, before.pages, matches, there, changed)
            if is_all_of_both(matches, count, len(before.pages)):
                work.table, work.bases = before.table.copy(), before.bases.copy()
            else:
                self._inherit(work, before, there)
        if self._is_key:
            changed |= work.table.xor != NOWHERE
            changed |= np.isin(pack_of(work.table.full), self._fold)
        wanted = np.flatnonzero(changed)
        for begin in range(0, len(wanted), pages.at_once):
            numbers = wanted[begin : begin + pages.at_once]
            self._look_at_chunk(work, before, there, numbers)
            pages.release(int(numbers[0]), int(numbers[-1]) + 1)
            if before is not None:
                before.pages.release()

    @staticmethod
    def _inherit(work: _Work, before: KnownFile, there: Numbers) -> None:
        found = there != NOWHERE
        at = there[found]
        work.table.full[found] = before.table.full[at]
        work.table.xor[found] = before.table.xor[at]
        work.bases[found] = before.bases[at]

    def _look_at_chunk(self, work: _Work, before: KnownFile | None, there: Numbers, numbers: Numbers) -> None:
        pages = work.pages.some(numbers)
        has_content = pages.have_content()
        work.table.full[numbers[~has_content]] = NOWHERE
        work.table.xor[numbers[~has_content]] = NOWHERE
        rest, pages = _only(has_content, numbers, pages)
        if before is not None:
            has_base = (there[rest] != NOWHERE) & (work.table.full[rest] != NOWHERE)
            has_base &= ~np.isin(pack_of(work.table.full[rest]), self._fold)
            if has_base.any():
                is_kept = np.zeros(len(rest), np.bool_)
                is_kept[has_base] = self._write_words(work, before, there, *_only(has_base, rest, pages))
                rest = rest[~is_kept]
        work.full.append(rest)

    def _write_words(
        self, work: _Work, before: KnownFile, there: Numbers, numbers: Numbers, pages: HeldPages
    ) -> Flags:
        """Keep the changed words of those pages that are worth it; returns for each whether it was."""
        assert self._parent is not None
        has_words = work.table.xor[numbers] != NOWHERE
        bases = np.where(has_words, work.bases[numbers], NOWHERE)
        theirs = before.pages.some(there[numbers])
        words, changed = changed_words(pages, theirs, self._parent.bases, bases, SPARSE)
        is_sparse: Flags = words <= SPARSE
        work.table.xor[numbers[is_sparse]] = NOWHERE  # of those that are as their last full version again
        # A key commit begins the bases anew, else those of pages that were kept full since would stay for ever.
        fresh = is_sparse & (words > 0) & (~has_words | self._is_key)
        if fresh.any():
            found = before.pages[there[numbers[fresh]]]
            found[has_words[fresh]] = self._parent.bases.get(bases[fresh & has_words])
            work.bases[numbers[fresh]] = self._bases.add(found)
        some = is_sparse & (words > 0)
        self._pages_of_words += len(changed.maps)
        is_full = self._kind_of_words & FrameKind.DICTIONARY and self._pages_of_words > DICTIONARY_MOST
        slots = self._writer.add_words(
            changed, self._kind_of_words & ~FrameKind.DICTIONARY if is_full else self._kind_of_words
        )
        work.table.xor[numbers[some]] = slot_places(self.pack, slots)
        return is_sparse

    def write_full(self, generation: Generation | None) -> _Kept:
        """Write the pages that were noted to be kept full; ``generation`` is the dictionary in use."""
        count = sum(len(numbers) for work in self.works for numbers in work.full)
        if self._parent is not None and may_begin(generation, count):
            return self._begin(count, generation)
        raw = self._writer.raw
        if generation is None or not may_use(generation, count):
            self._write_all(FrameKind.PAGES)
            return generation.unused() if generation is not None else None, None
        self._writer.compress_against(FrameKind.PAGES, generation.against.dictionary)
        if generation.adds_node:
            parts, pages, novel = self._novel(count, NODE_MOST)
            self._put_some(parts, pages, novel, FrameKind.DICTIONARY | FrameKind.DELTA)
            self._put_some(parts, pages, ~novel, FrameKind.DELTA)
        else:
            self._write_all(FrameKind.DELTA)
        return self._after(generation, FrameKind.PAGES, raw), generation.against.pack

    def _write_all(self, kind: FrameKind) -> None:
        for work, numbers in self._noted():
            self._put(work, numbers, work.pages[numbers], kind)
        self._writer.end_frame()

    def _noted(self) -> Iterator[tuple[_Work, Numbers]]:
        for work in self.works:
            wanted = np.concatenate([np.empty(0, np.int64), *work.full])
            for begin in range(0, len(wanted), _CHUNK):
                numbers = wanted[begin : begin + _CHUNK]
                yield work, numbers
                work.pages.release(int(numbers[0]), int(numbers[-1]) + 1)

    def _put(self, work: _Work, numbers: Numbers, pages: Pages, kind: FrameKind) -> None:
        work.table.full[numbers] = slot_places(self.pack, self._writer.add_pages(pages, kind))
        work.table.xor[numbers] = NOWHERE

    def _begin(self, count: int, after: Generation | None) -> _Kept:
        """Keep some of the pages as a dictionary, the others compressed against it."""
        parts, pages, novel = self._novel(count, DICTIONARY_MOST)
        self._put_some(parts, pages, novel, FrameKind.DICTIONARY)
        dictionary = self._writer.dictionary(FrameKind.PAGES)
        self._writer.compress_against(FrameKind.PAGES, dictionary)
        self._put_some(parts, pages, ~novel, FrameKind.DELTA)
        return begun(self.pack, dictionary, after=after), None if novel.all() else self.pack

    def _novel(self, count: int, most: int) -> tuple[list[tuple[_Work, Numbers]], Pages, Flags]:
        """The pages noted to be kept full, so many, and of which a dictionary shall have something, at most ``most``."""
        parts = list(self._noted())
        pages = np.empty((count, WORDS), np.uint64)
        np.concatenate([work.pages[numbers] for work, numbers in parts], out=pages)
        novel = novel_pages(pages)
        novel &= np.cumsum(novel) <= most
        return parts, pages, novel

    def _put_some(
        self, parts: Sequence[tuple[_Work, Numbers]], pages: Pages, wanted: Flags, kind: FrameKind
    ) -> None:
        begin = 0
        for work, numbers in parts:
            end = begin + len(numbers)
            some = wanted[begin:end]
            self._put(work, numbers[some], pages[begin:end][some], kind)
            begin = end
        self._writer.end_frame()


def _only(wanted: Flags, numbers: Numbers, pages: HeldPages) -> tuple[Numbers, HeldPages]:
    """Those of some pages that are wanted; copied only if not all of them are."""
    return (numbers, pages) if wanted.all() else (numbers[wanted], pages.some(wanted))
