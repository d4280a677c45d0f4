"""Taking contents of files in: what is as in the commit before is not read, what changed is kept page by page.

1. A content that the parent has is referred to, by its pages' places. Nothing of it is read.
2. One that took the place of another is compared with it: by the fingerprints of its stretches where they are known, so that only
   stretches that changed are read back from packs; else with all of it. Its pages are kept as those of memory are: as the
   words that changed since their last full version, or full.
3. All else is kept full. So is, in a key commit, what lies in packs of which little is used, and what was kept as changed words.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from blake3 import blake3

from relive.errors import ObjectCorrupt, ObjectMissing
from relive.model.advance import Advance
from relive.store.pages.batch import PageBatch
from relive.store.pages.materialize import OpenPacks
from relive.store.pages.packwriter import PackWriter
from relive.store.pages.page_diff import WORDS, Flags, Numbers, Pages
from relive.store.pages.size import PAGE, page_count
from relive.store.pages.table import NOWHERE, ContentTable, PageTable, pack_of, slot_places
from relive.store.pages.words import ChangedWords
from relive.store.small_files import FilePart

__all__ = ["SPARSE", "ContentIntake", "NewContent", "read_new"]

SPARSE = WORDS // 2  # [words] a page of which more differ is kept full
_STRETCH = 16  # [pages] that have a fingerprint
_PRINT = 16  # [bytes] of a fingerprint: collisions are as unlikely as of a 128-bit hash
_STEP = 1 << 20  # [bytes] hashed at a time, so that they stay in the processor's cache
_CHUNK = 1024  # [pages] looked at together


@dataclass(frozen=True, slots=True)
class NewContent:
    """A content that the store may not have.

    Attributes:
        name: BLAKE3 of it, 64 hexadecimal digits. size: in bytes.
        path: a file that holds it and does not change; begin: where in it, the multiple of a page.
        is_part: there is more in that file.
        prints: fingerprints of its stretches, one after the other; empty where it has only one.
        before: name of the content whose place it took; None if it took that of none.
    """

    name: str
    size: int
    path: Path
    prints: bytes
    before: str | None = None
    begin: int = 0
    is_part: bool = False


def read_new(path: Path, part: FilePart | None = None) -> NewContent:
    """Read a file once, or a part of one, for its name and its fingerprints. Holes are not read."""
    if part is not None:
        return _read_part(path, part)
    whole, prints, size = blake3(), bytearray(), 0
    buffer, zeros = memoryview(bytearray(_STEP)), memoryview(bytes(_STEP))
    with path.open("rb", buffering=0) as file:
        total = os.fstat(file.fileno()).st_size
        has_prints = total > _STRETCH * PAGE
        of_zeros = _prints_of(zeros) if has_prints else b""
        steps = _outside_of_holes(file.fileno(), np.arange(-(-total // _STEP)), unit=_STEP)
        file.seek(0)
        for holds_data in steps:
            count = min(_STEP, total - size)
            if holds_data:
                count = file.readinto(buffer[:count]) or 0
                whole.update(buffer[:count])
                if has_prints:
                    prints += _prints_of(buffer[:count])
            else:
                file.seek(count, os.SEEK_CUR)
                whole.update(zeros[:count])
                if has_prints:
                    prints += of_zeros if count == _STEP else _prints_of(zeros[:count])
            size += count
    return NewContent(whole.hexdigest(), size, path, bytes(prints))


def _read_part(path: Path, part: FilePart) -> NewContent:
    assert part.size <= _STRETCH * PAGE  # so it has no fingerprints
    with path.open("rb", buffering=0) as file:
        data = os.pread(file.fileno(), part.size, part.begin)
    if len(data) < part.size:
        raise OSError(errno.EIO, "it has become shorter", str(path))
    return NewContent(blake3(data).hexdigest(), part.size, path, b"", begin=part.begin, is_part=True)


def _prints_of(data: memoryview) -> bytes:
    """Fingerprints of the stretches of some bytes, which begin with a stretch."""
    step = _STRETCH * PAGE
    return b"".join(
        blake3(data[begin : begin + step]).digest(length=_PRINT) for begin in range(0, len(data), step)
    )


class ContentIntake:
    """The contents of one commit on their way into its pack."""

    def __init__(
        self,
        before: ContentTable,
        prints: Mapping[str, bytes],
        reader: OpenPacks,
        writer: PackWriter,
        pack: int,
    ) -> None:
        """Begin.

        Args:
            before: the contents of the parent; none where there is no parent.
            prints: fingerprints of those of them that are known.
            reader: of the parent's packs.
            pack: position of the pack that ``writer`` makes.
        """
        self._before = before
        self._prints = prints
        self._reader = reader
        self._writer = writer
        self._pack = pack
        self._full: list[tuple[NewContent, int, Numbers]] = []

    def ingest(
        self,
        wanted: Sequence[str],
        new: Mapping[str, NewContent],
        *,
        is_key: bool,
        fold: Numbers,
        advance: Advance,
    ) -> ContentTable:
        """Write what is new to the pack.

        Args:
            wanted: names of all contents of the commit; each is one of ``before`` or of ``new``.
            is_key: keep nothing as changed words.
            fold: positions of packs of which nothing is to be referred to any more.
            advance: is told how far it is.

        Raises:
            OSError: the disk is full.
        """
        names = _ordered(wanted, self._before, new)
        if not (is_key or len(fold)) and names == list(self._before.names):
            return self._before  # as in most commits; nobody changes it
        known = self._before.positions
        sizes = np.array(
            [self._before.sizes[known[name]] if name in known else new[name].size for name in names], np.int64
        )
        total = int((-(-sizes // PAGE)).sum())
        found = ContentTable(names, sizes, PageTable.of_zeros(total))
        self._inherit(found)
        if is_key or len(fold):
            self._rewrite(found.table, is_key=is_key, fold=fold)
        comparing = advance.begin("comparing files", len(new))
        for position, name in enumerate(names):
            if name not in self._before.positions:
                comparing.step()
                self._look_at(new[name], found.begins[position], found.table, is_key=is_key)
        self._writer.end_frame()
        self._write_full(found.table, advance)
        self._writer.end_frame()
        return found

    def _inherit(self, found: ContentTable) -> None:
        pairs = [
            (position, self._before.positions[name])
            for position, name in enumerate(found.names)
            if name in self._before.positions
        ]
        if not pairs:
            return
        ours, theirs = np.array(pairs, np.int64).T
        counts = found.begins[ours + 1] - found.begins[ours]
        within = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
        target = np.repeat(found.begins[ours], counts) + within
        source = np.repeat(self._before.begins[theirs], counts) + within
        found.table.full[target] = self._before.table.full[source]
        found.table.xor[target] = self._before.table.xor[source]

    def _rewrite(self, table: PageTable, *, is_key: bool, fold: Numbers) -> None:
        """Write what was inherited and shall not be referred to any more; what cannot be read stays as it is."""
        wanted = np.isin(pack_of(table.full), fold)
        if is_key:
            wanted |= table.xor != NOWHERE
        for numbers in _chunks(np.flatnonzero(wanted)):
            with contextlib.suppress(ObjectCorrupt, ObjectMissing):
                batch = self._reader.batch(PageTable(table.full[numbers], table.xor[numbers]))
                pages = batch.apply_xor(batch.full())
                table.full[numbers] = slot_places(self._pack, self._writer.add_pages(pages))
                table.xor[numbers] = NOWHERE

    def _look_at(self, content: NewContent, begin: int, table: PageTable, *, is_key: bool) -> None:
        """Keep what can be kept as changed words, note what has to be kept full."""
        count = page_count(content.size)
        end = begin + count
        before = self._before.positions.get(content.before or "")
        both = 0
        if before is not None:
            first, last = self._before.span(before)
            both = min(count, last - first)
            old = self._before.table.part(first, first + both)
            table.full[begin : begin + both], table.xor[begin : begin + both] = old.full, old.xor
            wanted = self._perhaps_changed(content, both)
            try:
                self._compare(content, begin, old, wanted, table, is_key=is_key)
            except (ObjectCorrupt, ObjectMissing):
                # What it was cannot be read, so nothing of it is of use.
                both = 0
        table.full[begin + both : end] = table.xor[begin + both : end] = NOWHERE
        self._full.append((content, begin, np.arange(both, count)))

    def _perhaps_changed(self, content: NewContent, both: int) -> Numbers:
        """Pages, of those that both have, whose stretch is not known to be as it was."""
        assert content.before is not None
        known = self._prints.get(content.before, b"")
        ours, theirs = (np.frombuffer(data, "V16") for data in (content.prints, known))
        length = min(len(ours), len(theirs))
        if not length:
            return np.arange(both)
        same = np.zeros(-(-both // _STRETCH), np.bool_)
        same[:length] = (ours[:length] == theirs[:length])[: len(same)]
        return np.flatnonzero(~np.repeat(same, _STRETCH)[:both])

    def _compare(
        self,
        content: NewContent,
        begin: int,
        old: PageTable,
        wanted: Numbers,
        table: PageTable,
        *,
        is_key: bool,
    ) -> None:
        last: PageBatch | None = None
        with content.path.open("rb", buffering=0) as file:
            for numbers in _chunks(wanted):
                part = PageTable(old.full[numbers], old.xor[numbers])
                last = self._reader.batch(part, last)
                bases = last.full()
                before = last.apply_xor(bases.copy())
                pages = _read(file.fileno(), numbers + content.begin // PAGE)
                differs = np.asarray((pages != before).any(axis=1))
                some = numbers[differs]
                pages, bases = pages[differs], bases[differs]
                table.xor[begin + some] = NOWHERE
                keeps = np.zeros(len(some), np.bool_)
                if not is_key:
                    keeps = self._write_sparse(begin + some, pages, bases, part.full[differs], table)
                self._full.append((content, begin, some[~keeps]))

    def _write_sparse(
        self, rows: Numbers, pages: Pages, bases: Pages, places: Numbers, table: PageTable
    ) -> Flags:
        """Keep the changed words of those pages that are worth it; returns for each whether it was."""
        mask = bases != pages
        words = np.count_nonzero(mask, axis=1)
        is_sparse: Flags = (words <= SPARSE) & (places != NOWHERE)
        some = is_sparse & (words > 0)
        changed = ChangedWords.of(pages[some], mask[some])
        table.xor[rows[some]] = slot_places(self._pack, self._writer.add_words(changed))
        return is_sparse

    def _write_full(self, table: PageTable, advance: Advance) -> None:
        writing = advance.begin("writing pages of files", sum(len(numbers) for _, _, numbers in self._full))
        for _, begin, numbers in self._full:
            table.xor[begin + numbers] = table.full[begin + numbers] = NOWHERE
        # Parts of one file are taken together: most of them are a page, and each call costs more than that page.
        for _, group in itertools.groupby(
            self._full, key=lambda one: str(one[0].path) if one[0].is_part else id(one)
        ):
            some = list(group)
            first = some[0][0]
            found = [(begin + numbers, numbers + content.begin // PAGE) for content, begin, numbers in some]
            rows, numbers = (np.concatenate(column) for column in zip(*found, strict=True))
            with first.path.open("rb", buffering=0) as file:
                if not first.is_part:
                    wanted = _outside_of_holes(file.fileno(), numbers)
                    rows, numbers = rows[wanted], numbers[wanted]
                for begin in range(0, len(numbers), _CHUNK):
                    pages = _read(file.fileno(), numbers[begin : begin + _CHUNK])
                    writing.step(len(pages))
                    has_content = np.asarray(pages.any(axis=1))
                    slots = self._writer.add_pages(pages[has_content])
                    table.full[rows[begin : begin + _CHUNK][has_content]] = slot_places(self._pack, slots)


def _ordered(wanted: Sequence[str], before: ContentTable, new: Mapping[str, NewContent]) -> list[str]:
    """As in the parent, what took the place of something in its place; so that tables differ little from each other."""
    left = dict.fromkeys(wanted)
    followers = {
        content.before: name for name, content in new.items() if name in left and content.before is not None
    }
    placed: dict[str, None] = {}
    for name in before.names:
        if name in left:
            placed[name] = None
        elif name in followers:
            placed[followers[name]] = None
    return list(placed | left)


def _chunks(numbers: Numbers) -> Iterator[Numbers]:
    for begin in range(0, len(numbers), _CHUNK):
        yield numbers[begin : begin + _CHUNK]


def _outside_of_holes(file: int, numbers: Numbers, *, unit: int = PAGE) -> Flags:
    """For parts of a file, of ``unit`` bytes, by their numbers, which rise: which can hold anything (lseek(2), SEEK_DATA)."""
    found = np.zeros(len(numbers), np.bool_)
    size, end = os.fstat(file).st_size, 0
    while end < size:
        try:
            begin = os.lseek(file, end, os.SEEK_DATA)
            end = os.lseek(file, begin, os.SEEK_HOLE)
        except OSError as error:
            if error.errno == errno.ENXIO:
                break  # nothing but a hole is left
            begin, end = end, size  # a file system without holes
        first, last = np.searchsorted(numbers, (begin // unit, -(-end // unit)))
        found[first:last] = True
    return found


def _read(file: int, numbers: Numbers) -> Pages:
    """Pages of a file by their numbers, which rise; what lies behind its end counts as zeros."""
    pages = np.zeros((len(numbers), WORDS), np.uint64)
    data = pages.reshape(-1).view(np.uint8).data
    ends: Sequence[int] = np.append(np.flatnonzero(np.diff(numbers) != 1) + 1, len(numbers)).tolist()
    begin = 0
    for end in ends:
        if begin < end:
            target, at = data[begin * PAGE : end * PAGE], int(numbers[begin]) * PAGE
            while target and (count := os.preadv(file, [target], at)):
                target, at = target[count:], at + count
        begin = end
    return pages
