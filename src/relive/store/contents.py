"""Giving back the contents of committed files: from the packs of a commit that has them, checked against their names.

A content is asked for by its name alone. Which commit has it is known of those whose files were listed last (``layers``); else the
commits are looked through, the newest first. Contents of commits from before format 5 are objects.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from blake3 import blake3

from relive.errors import ObjectCorrupt, ObjectMissing, RefUnknown, StoreError
from relive.model.commit import CommitId, Layer, Manifest
from relive.store.listing import checked_layers
from relive.store.manifests import commit_id_of
from relive.store.pages.last_index import LastIndex
from relive.store.pages.materialize import PageSource
from relive.store.pages.packs import Packs
from relive.store.pages.page_diff import WORDS, Flags, Pages
from relive.store.pages.placement import Placement
from relive.store.pages.size import PAGE
from relive.store.pages.table import NOWHERE, ContentTable, PackIndex

__all__ = ["StoredContents", "damaged_contents"]

_COMMITS_KEPT = 8
_BLOCK = 2048  # [pages] made at once: small contents that lie together are read together
_ZEROS: Pages = np.zeros((_BLOCK, WORDS), np.uint64)  # never written to, so they take no memory


@dataclass(slots=True)
class _Known:
    """A commit that was listed, with its open packs while something of it is read."""

    commit: CommitId
    placement: Placement
    contents: ContentTable
    source: PageSource | None = None
    blocks: OrderedDict[int, Pages] = field(default_factory=OrderedDict)


class StoredContents:
    """Use it from one thread. ``close`` gives back open packs; it may be used again afterwards."""

    def __init__(
        self,
        packs: Packs,
        last_index: LastIndex,
        placement_of: Callable[[CommitId], Placement],
        newest_first: Callable[[], Iterator[CommitId]],
    ) -> None:
        """Read nothing yet.

        Args:
            placement_of: reads the placement of a commit.
            newest_first: names all commits.
        """
        self._packs = packs
        self._last_index = last_index
        self._placement_of = placement_of
        self._newest_first = newest_first
        self._known: OrderedDict[CommitId, _Known] = OrderedDict()

    def layers(self, manifest: Manifest) -> list[Layer]:
        """The layers of a commit that has a listing.

        Raises:
            ObjectMissing, ObjectCorrupt, SignatureInvalid, KeyMissing, KeyWrong: they cannot be read.
        """
        assert manifest.listing is not None
        commit_id = commit_id_of(manifest)
        placement, index = self._index_of(commit_id)
        self._cache(_Known(commit_id, placement, index.contents))
        return checked_layers(manifest.listing, index.listing)

    def _index_of(self, commit_id: CommitId) -> tuple[Placement, PackIndex]:
        placement = self._placement_of(commit_id)
        while True:
            try:
                with PageSource(placement, self._packs, self._last_index) as source:
                    return placement, source.index
            except ObjectMissing:
                # Readers hold no lock, so its pages may be moved while it is read.
                before, placement = placement, self._placement_of(commit_id)
                if placement == before:
                    raise

    def has(self, name: str) -> bool:
        """A commit has the content, as far as can be read."""
        return self._find(name) is not None

    def write(self, name: str, path: Path) -> None:
        """Make a file, new, with a content. Pages of zeros become holes.

        Raises:
            ObjectMissing: no commit has it. ObjectCorrupt: it is damaged; the file is then of no use.
            KeyMissing, KeyWrong: it is sealed with a key that is not there.
            OSError: the disk is full.
        """
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            at = 0
            for data, is_held in self._pieces(name):
                _write_at(file, at, data, is_held)
                at += len(data)
            os.ftruncate(file, at)
        finally:
            os.close(file)

    def read(self, name: str) -> bytes:
        """A content; raises as ``write``."""
        return b"".join(data for data, _ in self._pieces(name))

    def close(self) -> None:
        """Close what is open."""
        for known in self._known.values():
            _close(known)

    def forget(self, commits: Collection[CommitId]) -> None:
        """These are dropped."""
        for commit_id in commits:
            known = self._known.pop(commit_id, None)
            if known is not None:
                _close(known)

    def _cache(self, known: _Known) -> None:
        before = self._known.pop(known.commit, None)
        if before is not None:
            _close(before)
        self._known[known.commit] = known
        while len(self._known) > _COMMITS_KEPT:
            _close(self._known.popitem(last=False)[1])

    def _find(self, name: str) -> _Known | None:
        for known in reversed(self._known.values()):
            if name in known.contents.positions:
                return known
        for commit_id in self._newest_first():
            if commit_id not in self._known:
                with suppress(StoreError, RefUnknown):
                    placement, index = self._index_of(commit_id)
                    if name in index.contents.positions:
                        found = _Known(commit_id, placement, index.contents)
                        self._cache(found)
                        return found
        return None

    def _pieces(self, name: str) -> Iterator[tuple[memoryview, Flags]]:
        """(bytes, which of their pages are kept anywhere: the others are zeros) from the first to the last.

        Raises at the end where they are not its.
        """
        known = self._find(name)
        if known is None:
            raise _missing(name)
        begin, end = known.contents.span(known.contents.positions[name])
        left, hasher = int(known.contents.sizes[known.contents.positions[name]]), blake3()
        while begin < end:
            block = begin // _BLOCK
            until = min(end, (block + 1) * _BLOCK)
            table = known.contents.table.part(begin, until)
            is_held = (table.full != NOWHERE) | (table.xor != NOWHERE)
            within = slice(begin - block * _BLOCK, until - block * _BLOCK)
            try:
                pages = (self._block(known, block) if is_held.any() else _ZEROS)[within]
            except ObjectMissing:
                known = self._again(known, name)
                continue
            data = pages.reshape(-1).view(np.uint8).data[:left]
            hasher.update(data)
            yield data, is_held
            left, begin = left - len(data), until
        if hasher.hexdigest() != name:
            raise ObjectCorrupt(
                f"content {name[:12]} is damaged",
                cause="what its packs hold does not match its name",
            )

    def _again(self, known: _Known, name: str) -> _Known:
        """The commit as it lies now, where its pages were moved meanwhile.

        Raises:
            ObjectMissing: it has lost a pack, or was dropped.
        """
        if self._placement_of(known.commit) == known.placement:
            raise _missing(name)
        placement, index = self._index_of(known.commit)
        found = _Known(known.commit, placement, index.contents)
        self._cache(found)
        return found

    def _block(self, known: _Known, block: int) -> Pages:
        found = known.blocks.get(block)
        if found is None:
            if known.source is None:
                self.close()
                source = PageSource(known.placement, self._packs, self._last_index)
                known.source = source.__enter__()
            batch = known.source.batch(known.contents.table.part(block * _BLOCK, (block + 1) * _BLOCK))
            found = batch.apply_xor(batch.full())
            known.blocks.clear()
            known.blocks[block] = found
        return found


def damaged_contents(source: PageSource) -> list[str]:
    """The contents of a commit's files that are not what their names say; every page of them is read.

    Raises:
        ObjectMissing, ObjectCorrupt, KeyMissing, KeyWrong: they cannot be made at all.
    """
    contents = source.index.contents
    found: list[str] = []
    hasher, first = blake3(), 0
    with closing(source.batches(contents.table)) as batches:
        for batch in batches:
            pages = batch.apply_xor(batch.full())
            begin, behind = first, first + len(pages)
            while begin < behind:
                # Empty files have no page, and nothing that could be damaged.
                position = int(np.searchsorted(contents.begins, begin, side="right")) - 1
                own, end = contents.span(position)
                until = min(behind, end)
                left = int(contents.sizes[position]) - (begin - own) * PAGE
                hasher.update(pages[begin - first : until - first].reshape(-1).view(np.uint8).data[:left])
                begin = until
                if begin == end:
                    if hasher.hexdigest() != contents.names[position]:
                        found.append(contents.names[position])
                    hasher = blake3()
            first = behind
    return found


def _close(known: _Known) -> None:
    known.blocks.clear()
    source, known.source = known.source, None
    if source is not None:
        source.__exit__()


def _write_at(file: int, at: int, data: memoryview, is_held: Flags) -> None:
    """Write the pages that are held, each run of them at once; the others become holes."""
    edges = np.flatnonzero(np.diff(is_held, prepend=False, append=False)).tolist()
    for first, last in zip(edges[::2], edges[1::2], strict=True):
        rest, place = data[first * PAGE : last * PAGE], at + first * PAGE
        while rest:
            count = os.pwrite(file, rest, place)
            rest, place = rest[count:], place + count


def _missing(name: str) -> ObjectMissing:
    return ObjectMissing(
        f"content {name[:12]} is not in the store",
        cause="it was deleted or never arrived",
    )
