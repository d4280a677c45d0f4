"""Repacking: what still is of use in a pack that is mostly dead moves to a new one, and the dead one can go.

In this order, so that a crash at any point leaves every commit readable: the new pack, then the placements of the commits that
need it, one after the other; the old pack is left to ``sweep``, which removes it when no placement names it any more.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from relive.model.commit import CommitId
from relive.store.pages.blob_dictionary import BlobDictionary
from relive.store.pages.compaction import dictionaries_in, packs_in, packs_used, used_slots
from relive.store.pages.dictionary import Dictionary
from relive.store.pages.materialize import PageSource
from relive.store.pages.packfile import FRAME_PAGES, FrameKind
from relive.store.pages.packreader import HeldWords, PackReader
from relive.store.pages.packs import Packs
from relive.store.pages.packwriter import PackWriter
from relive.store.pages.page_diff import Numbers
from relive.store.pages.placement import FramePlace, Placement, Placements
from relive.store.pages.table import PackIndex, PageTable, encode_index, pack_of, slot_of, slot_places
from relive.store.pages.words import ChangedWords

__all__ = ["dead_share", "repack_one"]

_LIVE_LEAST = 2  # a pack of which less than this part is used is repacked


def repack_one(names: Iterable[str], placements: Placements, packs: Packs) -> bool:
    """Repack the first of these packs that is mostly dead; returns whether there was one.

    To be called with the store's lock held alone, and when every commit has a placement that can be read.

    Raises:
        ObjectMissing, ObjectCorrupt, SignatureInvalid, KeyMissing, KeyWrong: a commit cannot be read; nothing is lost.
        OSError: the disk is full; nothing is lost.
    """
    found = [placements.read(commit_id) for commit_id in sorted(placements.commits())]
    for name in names:
        users = [placement for placement in found if name in placement.needed()]
        live = _live_slots(name, users, packs)
        if live is not None:
            _move(name, live, users, placements, packs)
            return True
    return False


def dead_share(name: str, placements: Placements, packs: Packs) -> float | None:
    """How much of a pack ``repack_one`` would not keep, from 0.5 to 1; None if it would leave it as it is.

    Raises:
        ObjectMissing, ObjectCorrupt, SignatureInvalid, KeyMissing, KeyWrong: a commit cannot be read.
    """
    found = [placements.read(commit_id) for commit_id in sorted(placements.commits())]
    live = _live_slots(name, [placement for placement in found if name in placement.needed()], packs)
    if live is None:
        return None
    with PackReader(packs, name) as pack:
        return 1 - len(live) / max(1, pack.pages)


def _live_slots(name: str, users: Sequence[Placement], packs: Packs) -> Numbers | None:
    """The slots of a pack that are of use to anyone; None as soon as they are too many for it to be repacked."""
    live = np.empty(0, np.int64)
    with PackReader(packs, name) as pack:
        for placement in users:
            with PageSource(placement, packs) as source:
                position = placement.packs.index(name)
                used = used_slots(source.index.all_tables(), position)
                for what in dictionaries_in(source.index.dictionaries, position):
                    used = np.union1d(used, pack.dictionary_slots(what))
            live = np.union1d(live, used)
            if len(live) * _LIVE_LEAST >= pack.pages:
                return None
    return live


def _move(name: str, live: Numbers, users: Sequence[Placement], placements: Placements, packs: Packs) -> None:
    writer = PackWriter(packs)
    try:
        slots = _copy_pages(name, live, writer, users, packs)
        moved = []
        first: tuple[FramePlace, BlobDictionary] | None = None
        for old in users:
            own = old.packs.index(name)
            with PageSource(old, packs) as source:
                index = _moved_index(source.index, own, live, slots)
            data = encode_index(index)
            frame = writer.add_blob(data, None if first is None else first[1])
            bases = [] if first is None else [FramePlace(own, first[0].frame)]
            first = first or (FramePlace(own, frame), BlobDictionary(data))
            used = packs_used(map(packs_in, index.all_tables())) | {own, *index.dictionaries.values()}
            moved.append((old, FramePlace(own, frame), bases, used))
        new = writer.finish()
    except BaseException:
        writer.discard()
        raise
    for old, own_index, bases, used in moved:
        names = [
            new if number == own_index.pack else one if number in used else None
            for number, one in enumerate(old.packs)
        ]
        placements.write(Placement(CommitId(old.commit), names, own_index, bases, old.since_key))


def _moved_index(index: PackIndex, pack: int, live: Numbers, slots: Numbers) -> PackIndex:
    def moved(table: PageTable) -> PageTable:
        return PageTable(_moved(table.full, pack, live, slots), _moved(table.xor, pack, live, slots))

    return replace(
        index,
        tables={image: moved(table) for image, table in index.tables.items()},
        contents=replace(index.contents, table=moved(index.contents.table)),
    )


def _copy_pages(
    name: str, live: Numbers, writer: PackWriter, users: Sequence[Placement], packs: Packs
) -> Numbers:
    """Write the pages in these slots of a pack to another; returns their new slots."""
    slots = [np.empty(0, np.int64)]
    frames, begins = np.unique(live // FRAME_PAGES, return_index=True)
    ends = np.append(begins, len(live))[1:]  # none if all that is needed of the pack is an index
    with PackReader(packs, name) as pack:
        against = {
            what: _dictionary_of(name, what, users, packs) for what in (FrameKind.PAGES, FrameKind.WORDS)
        }
        for what, dictionary in against.items():
            if dictionary is not None:
                writer.compress_against(what, dictionary)
        pack.dictionary_of = writer.compressed_against
        is_whole = {what: bool(np.isin(pack.dictionary_slots(what), live).all()) for what in against}
        for (frame, held), begin, end in zip(pack.page_frames(frames.tolist()), begins, ends, strict=True):
            rows, kind = live[begin:end] % FRAME_PAGES, pack.kind(frame) & ~FrameKind.OVERLAY
            if not is_whole[kind & FrameKind.WORDS]:
                # Nobody needs it any more, and it has lost pages: the rest are as others.
                kind &= ~FrameKind.DICTIONARY
            if isinstance(held, HeldWords):
                pages, mask = held.expanded()
                slots.append(
                    writer.add_words(ChangedWords.of(pages[rows], mask[rows]), kind | FrameKind.WORDS)
                )
            else:
                slots.append(writer.add_pages(held.pages[rows], kind))
    writer.end_frame()
    return np.concatenate(slots)


def _dictionary_of(name: str, what: FrameKind, users: Sequence[Placement], packs: Packs) -> Dictionary | None:
    """What pages of a pack are compressed against; None where no commit needs such pages."""
    for placement in users:
        with PageSource(placement, packs) as source:
            position = placement.packs.index(name)
            if (position, what) in source.index.dictionaries:
                return source.dictionary_for(position, what)
    return None


def _moved(places: Numbers, pack: int, live: Numbers, slots: Numbers) -> Numbers:
    """The places, those in ``pack`` exchanged: slot ``live[i]`` is now ``slots[i]``."""
    found = places.copy()
    here = pack_of(places) == pack
    found[here] = slot_places(pack, slots[np.searchsorted(live, slot_of(places[here]))])
    return found
