"""Which frames of a pack a commit uses, and whether its index fits it. Reads indexes, so it takes numpy and the store key."""

from __future__ import annotations

import numpy as np

from relive.errors import ObjectCorrupt
from relive.model.commit import Manifest
from relive.store.bundle import BUNDLE, checked_bundle
from relive.store.contents import damaged_contents
from relive.store.listing import check_listing
from relive.store.pages.compaction import dictionaries_in, packs_in, packs_used, used_slots
from relive.store.pages.materialize import PageSource
from relive.store.pages.packcheck import read_frames
from relive.store.pages.packfile import FRAME_PAGES, FrameKind
from relive.store.pages.packreader import PackReader
from relive.store.pages.packs import Packs
from relive.store.pages.page_diff import Numbers
from relive.store.pages.placement import Placement
from relive.store.pages.table import NOWHERE

__all__ = ["check_contents", "check_index", "check_page_files", "frames_used", "kinds_of_frames"]


def frames_used(placement: Placement, pack: str, packs: Packs) -> set[int]:
    """The numbers of the frames of ``pack`` without which the commit cannot be given back.

    Raises:
        ObjectMissing, ObjectCorrupt, KeyMissing, KeyWrong: the commit's index cannot be read.
    """
    position = list(placement.packs).index(pack)
    with PageSource(placement, packs) as source:
        slots = used_slots(source.index.all_tables(), position)
        for what in dictionaries_in(source.index.dictionaries, position):
            slots = np.union1d(slots, _dictionary_slots(pack, what, packs))
    places = (placement.index, *placement.bases)
    return set((slots // FRAME_PAGES).tolist()) | {place.frame for place in places if place.pack == position}


def _dictionary_slots(pack: str, what: FrameKind, packs: Packs) -> Numbers:
    with PackReader(packs, pack) as reader:
        return reader.dictionary_slots(what)


def kinds_of_frames(placement: Placement, packs: Packs) -> dict[str, dict[int, str]]:
    """For each pack that the commit needs, the frames it uses and as what: ``full``, ``xor``, ``file`` or ``index``.

    Raises:
        ObjectMissing, ObjectCorrupt, KeyMissing, KeyWrong: the commit's index cannot be read.
    """
    found: dict[str, dict[int, str]] = {name: {} for name in placement.needed()}
    with PageSource(placement, packs) as source:
        files = source.index.contents.table
        columns = {
            "file": [files.full, files.xor],
            "full": [table.full for table in source.index.tables.values()],
            "xor": [table.xor for table in source.index.tables.values()],
        }
        for kind, found_places in columns.items():
            places = np.concatenate([np.empty(0, np.int64), *found_places])
            for frame in np.unique(places[places != NOWHERE] // FRAME_PAGES).tolist():
                pack, number = divmod(frame, (1 << 32) // FRAME_PAGES)
                name = placement.packs[pack] if pack < len(placement.packs) else None
                if name is not None:
                    found[name][number] = kind
        for position in set(source.index.dictionaries.values()):
            name = placement.packs[position] if position < len(placement.packs) else None
            if name is not None:
                for what in dictionaries_in(source.index.dictionaries, position):
                    frames = np.unique(_dictionary_slots(name, what, packs) // FRAME_PAGES).tolist()
                    found[name].update(dict.fromkeys(frames, "xor" if what == FrameKind.WORDS else "full"))
    for place in (placement.index, *placement.bases):
        found[placement.packs[place.pack] or ""][place.frame] = "index"
    return found


def check_index(manifest: Manifest, placement: Placement, packs: Packs) -> set[str]:
    """Whether the index can be read and fits: a table of each page file's length, places that packs have, the small images,
    the list of files and that each has its content.

    Returns:
        The names of the contents that it has.

    Raises:
        ObjectMissing, ObjectCorrupt, KeyMissing, KeyWrong: it cannot be read, or does not fit.
    """
    with PageSource(placement, packs) as source:
        contents = source.index.contents
        tables = [contents.table]
        if manifest.listing is not None:
            check_listing(manifest.listing, source.index)
        for image in manifest.images:
            if image.name == BUNDLE:
                checked_bundle(image, source.index.bundle)
            else:
                tables.append(source.table_of(image))
        dictionaries = source.index.dictionaries
    for position in packs_used(map(packs_in, tables)) | set(dictionaries.values()):
        name = placement.packs[position] if position < len(placement.packs) else None
        if name is None:
            raise _unfit(f"it names pack {position}, which its placement does not list")
        frames = read_frames(packs.path(name), name)
        if used_slots(tables, position).max(initial=0) // FRAME_PAGES >= len(frames):
            raise _unfit(f"it names a slot that pack {name[:12]} does not have")
        kinds = {frame.kind & ~FrameKind.DELTA for frame in frames}
        if any(what | FrameKind.DICTIONARY not in kinds for what in dictionaries_in(dictionaries, position)):
            raise _unfit(f"it names a dictionary that pack {name[:12]} does not have")
    return set(contents.names)


def check_page_files(manifest: Manifest, placement: Placement, packs: Packs) -> None:
    """Whether what comes of all pages of a commit are the page files of its manifest. They are made, but not kept.

    Raises:
        ObjectMissing, ObjectCorrupt, KeyMissing, KeyWrong: one of them cannot be made, or is another.
    """
    with PageSource(placement, packs) as source:
        for image in manifest.images:
            if image.name != BUNDLE:
                source.check(image)


def check_contents(placement: Placement, packs: Packs) -> None:
    """Whether what comes of all pages are the contents of the commit's files. They are made, but not kept.

    Raises:
        ObjectMissing, ObjectCorrupt, KeyMissing, KeyWrong: one of them cannot be made, or is another.
    """
    with PageSource(placement, packs) as source:
        damaged = damaged_contents(source)
    if damaged:
        raise ObjectCorrupt(
            f"{len(damaged)} files of the commit are damaged",
            cause=f"what its packs hold does not match the name of content {damaged[0][:12]}",
        )


def _unfit(cause: str) -> ObjectCorrupt:
    return ObjectCorrupt("a commit's index is damaged", cause=cause)
