"""A commit read back from packs, to compare the next one with: for the first commit after a restart."""

from __future__ import annotations

import tempfile

import numpy as np

from relive.model.commit import ImageFile, Manifest
from relive.store.bundle import BUNDLE, checked_bundle, unpack_bundle
from relive.store.pages.bases import Bases
from relive.store.pages.last import KnownCommit, KnownFile
from relive.store.pages.layout import PageSource, check_pages, fresh_pages
from relive.store.pages.packs import Packs
from relive.store.pages.placement import Placement
from relive.store.pages.runs import PageFile, page_files
from relive.store.pages.table import NOWHERE

__all__ = ["read_back"]


def read_back(manifest: Manifest, placement: Placement, packs: Packs) -> KnownCommit:
    """Its pages, with the bases of those that are kept as XOR, all checked.

    Raises:
        ObjectMissing, ObjectCorrupt, KeyMissing, KeyWrong: something of it is gone, damaged or sealed.
        OSError: the disk is full.
    """
    bases = Bases(packs.incoming)
    files: dict[str, KnownFile] = {}
    with PageSource(placement, packs) as source:
        images = {image.name: image for image in manifest.images}
        small = unpack_bundle(checked_bundle(images.pop(BUNDLE), source.index.bundle))
        sizes = {name: image.size for name, image in images.items()}
        for file in page_files(small, sizes):
            files[file.key] = _read_back_file(file, images[file.name], source, bases)
    return KnownCommit(
        files=files,
        bases=bases,
        packs=placement.packs,
        key_index=placement.base or placement.index,
        key_bytes=source.key_bytes,
        since_key=placement.since_key,
    )


def _read_back_file(file: PageFile, image: ImageFile, source: PageSource, bases: Bases) -> KnownFile:
    table = source.table_of(image)
    with tempfile.TemporaryFile(prefix="pages.", dir=bases.directory) as nameless:
        pages = fresh_pages(nameless.fileno(), len(table.full))
        source.read_full(table, nameless.fileno())
    numbers = np.full(len(table.full), NOWHERE, np.int64)
    has_xor = table.xor != NOWHERE
    numbers[has_xor] = bases.add(pages[has_xor])
    source.apply_xor(table, pages)
    check_pages(image, pages)
    return KnownFile(file.runs, pages, table, numbers)
