"""A commit read back from packs, to compare the next one with: for the first commit after a restart."""

from __future__ import annotations

import tempfile
from contextlib import closing

import numpy as np

from relive.model.commit import ImageFile, Manifest
from relive.store.bundle import BUNDLE, checked_bundle, unpack_bundle
from relive.store.listing import checked_layers
from relive.store.pages.blob_dictionary import BlobDictionary
from relive.store.pages.mapped import MappedPages, map_pages
from relive.store.pages.materialize import PageSource
from relive.store.pages.nodes import is_node, path
from relive.store.pages.packs import Packs
from relive.store.pages.pagesink import PageSink
from relive.store.pages.parent_cache import KnownCommit, KnownContents, KnownFile, KnownIndex
from relive.store.pages.placement import Placement
from relive.store.pages.runs import PageFile, page_files
from relive.store.pages.table import NOWHERE
from relive.store.pages.xor_bases import XorBases

__all__ = ["read_back"]


def read_back(manifest: Manifest, placement: Placement, packs: Packs) -> KnownCommit:
    """Its pages and where its files' contents lie, with the bases of those that are kept as changed words, all checked.

    Raises:
        ObjectMissing, ObjectCorrupt, KeyMissing, KeyWrong: something of it is gone, damaged or sealed.
        OSError: the disk is full.
    """
    bases = XorBases(packs.incoming)
    files: dict[str, KnownFile] = {}
    with PageSource(placement, packs) as source:
        images = {image.name: image for image in manifest.images}
        small = {}
        if BUNDLE in images:
            small = unpack_bundle(checked_bundle(images.pop(BUNDLE), source.index.bundle))
        sizes = {name: image.size for name, image in images.items()}
        for file in page_files(small, sizes):
            files[file.key] = _read_back_file(file, images[file.name], source, bases)
        layers = [] if manifest.listing is None else checked_layers(manifest.listing, source.index.listing)
    return KnownCommit(
        files=files,
        contents=KnownContents.of(source.index.contents, {}, layers),
        bases=bases,
        packs=placement.packs,
        indexes=_indexes(placement, source),
        since_key=placement.since_key,
        dictionaries=source.index.dictionaries,
        generations={},
    )


def _indexes(placement: Placement, source: PageSource) -> list[KnownIndex]:
    """Those that the next commit's may be compressed against. Where they were moved, or an older Relive wrote them, there may be
    fewer than those by which the series counts: then each counts as an older one.
    """
    indexes = [BlobDictionary(data) for data in source.indexes]
    if not placement.bases:
        return [KnownIndex(0, placement.index, indexes[0])]
    own = placement.since_key
    found = zip(path(own)[::-1], placement.bases, indexes, strict=False)
    known = [KnownIndex(*one) for one in found]
    return [*known, KnownIndex(own, placement.index, indexes[-1])] if is_node(own) else known


def _read_back_file(file: PageFile, image: ImageFile, source: PageSource, bases: XorBases) -> KnownFile:
    table = source.table_of(image)
    numbers = np.full(len(table.full), NOWHERE, np.int64)
    begin = 0
    with tempfile.TemporaryFile(prefix="pages.", dir=bases.directory) as nameless:
        with PageSink(nameless.fileno(), image) as sink, closing(source.batches(table)) as batches:
            for batch in batches:
                pages, has_xor = batch.full(), batch.table.xor != NOWHERE
                numbers[begin : begin + len(pages)][has_xor] = bases.add(pages[has_xor])
                begin += len(pages)
                sink.add(batch.apply_xor(pages))
            sink.check()
        return KnownFile(file.runs, MappedPages(map_pages(nameless.fileno())), table, numbers)
