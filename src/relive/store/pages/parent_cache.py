"""What is known of a commit whose child is likely to come next: its pages, where they lie, and bases for what changes.

Page files are held open and mapped though they have lost their names: no directory has to be swept or trusted, and a process
that ends gives their space back; so is the pool in which the pages of micro-commits are. After a restart they are made again from
packs.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from relive.images.pagemap import Run
from relive.model.commit import CommitId, Layer
from relive.store.pages.blob_dictionary import BlobDictionary
from relive.store.pages.dictionary_policy import Generation
from relive.store.pages.held_pages import HeldPages
from relive.store.pages.packfile import FrameKind
from relive.store.pages.page_diff import Numbers
from relive.store.pages.placement import FramePlace
from relive.store.pages.places import FilePlaces
from relive.store.pages.table import ContentTable, Dictionaries, PageTable
from relive.store.pages.xor_bases import XorBases

__all__ = ["KnownCommit", "KnownContents", "KnownFile", "KnownIndex", "ParentCache"]

_MOST = 4  # commits known at once: one for each life that a process takes in


@dataclass(frozen=True, slots=True)
class KnownFile:
    """A page file: its pages' addresses, contents, places, and the numbers of their bases (-1: none)."""

    runs: Sequence[Run]
    pages: HeldPages
    table: PageTable
    bases: Numbers


@dataclass(frozen=True, slots=True)
class KnownContents:
    """The contents of a commit's files. Nothing of them is held but where they lie.

    Attributes:
        prints: by name, the fingerprints of those that have been read since this process started.
        places: where each stood.
    """

    contents: ContentTable
    prints: Mapping[str, bytes]
    places: FilePlaces

    @classmethod
    @cache
    def none(cls) -> KnownContents:
        """Of no files; nobody changes it."""
        return cls.of(ContentTable.none(), {}, ())

    @classmethod
    def of(
        cls, contents: ContentTable, prints: Mapping[str, bytes], layers: Sequence[Layer]
    ) -> KnownContents:
        """Those that the layers name."""
        return cls(contents, prints, FilePlaces(layers, contents))


@dataclass(frozen=True, slots=True)
class KnownIndex:
    """An index that others are compressed against.

    Attributes:
        number: of its commit, counted from its key commit.
        dictionary: the index, undecoded.
    """

    number: int
    place: FramePlace
    dictionary: BlobDictionary


@dataclass(frozen=True, slots=True)
class KnownCommit:
    """What the next commit is compared with.

    Attributes:
        files: by the key that they are found again by.
        packs: names by position, as in the placement; None for one that is not needed any more.
        indexes: those that the next commit's may be compressed against, the oldest first, from its key commit on.
        since_key: commits since that.
        dictionaries: what is compressed against dictionaries, as in the index.
        generations: the dictionaries in use, of full pages (PAGES) and of changed words (WORDS); one that is missing is not there,
            or not known.
    """

    files: Mapping[str, KnownFile]
    contents: KnownContents
    bases: XorBases
    packs: Sequence[str | None]
    indexes: Sequence[KnownIndex]
    since_key: int
    dictionaries: Dictionaries
    generations: Mapping[FrameKind, Generation]


class ParentCache:
    """A few of them, the one known longest going first.

    What is given up stays in memory until ``release_memory``: taking it apart costs up to a quarter of a millisecond for each of
    its megabytes, which nobody shall wait for.
    """

    def __init__(self) -> None:
        self._known: OrderedDict[CommitId, KnownCommit] = OrderedDict()
        self._given_up: list[KnownCommit] = []

    def get(self, commit_id: CommitId) -> KnownCommit | None:
        """None if it is not known (any more)."""
        return self._known.get(commit_id)

    def put(self, commit_id: CommitId, known: KnownCommit, *, instead_of: CommitId | None) -> None:
        """Remember a commit; its parent's pages are given up, since its own child comes next."""
        parent = self._known.pop(instead_of, None) if instead_of is not None else None
        self._given_up += [parent] if parent is not None else []
        self._known[commit_id] = known
        while len(self._known) > _MOST:
            self._given_up.append(self._known.popitem(last=False)[1])

    def forget(self, commits: Collection[CommitId]) -> None:
        """These were not stored after all."""
        for commit_id in commits:
            known = self._known.pop(commit_id, None)
            self._given_up += [known] if known is not None else []

    def release_dictionaries(self) -> None:
        """Give the memory back in which indexes lie ready to be compressed against; the next commit makes one ready again."""
        for known in self._known.values():
            for index in known.indexes:
                index.dictionary.release_memory()

    def release_memory(self) -> None:
        """Give the memory back of what was given up, and of pages that are to be compared with. Other threads go on meanwhile.

        Of the latter only what this process has mapped of it: they come back from their file, mostly from the page cache.
        """
        self._given_up.clear()
        for known in self._known.values():
            for file in known.files.values():
                file.pages.release()
            known.bases.release_memory()
