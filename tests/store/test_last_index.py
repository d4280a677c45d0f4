"""An index is read once for all that is asked of one commit in a row, and never taken for another's."""

from __future__ import annotations

import numpy as np
import pytest

from relive.errors import ObjectCorrupt
from relive.store.pages import materialize
from relive.store.pages.materialize import OpenPacks
from relive.store.pages.table import NOWHERE, PageTable

from .builders import commit


@pytest.fixture
def decoded(monkeypatch):
    """The number of indexes that were decoded, as a list of their lengths."""
    found = []
    decode = materialize.decode_index

    def counted(data):
        found.append(len(data))
        return decode(data)

    monkeypatch.setattr(materialize, "decode_index", counted)
    return found


def laid_out(store, manifest, directory):
    directory.mkdir()
    store.images.lay_out(manifest, directory)
    return (directory / "core-1.img").read_bytes(), (directory / "pages-1.img").read_bytes()


def test_files_images_and_pages_of_a_commit_take_its_index_once(store, decoded, tmp_path):
    one = commit(store, pages=b"a" * 8192, small={"core-1.img": b"core"})
    decoded.clear()
    manifest = store.manifest(one.id)
    assert laid_out(store, manifest, tmp_path / "first") == (b"core", b"a" * 8192)
    store.images.open_pages(manifest).__exit__()
    assert store.images.read_small(manifest, "core-1.img") == b"core"
    assert len(decoded) == 1


def test_two_commits_in_turns_give_each_its_own(store, decoded, tmp_path):
    made = [
        commit(store, pages=one * 8192, small={"core-1.img": one}, capture=str(one)) for one in (b"a", b"b")
    ]
    decoded.clear()
    for turn in range(2):
        for one, letter in zip(made, (b"a", b"b"), strict=True):
            manifest = store.manifest(one.id)
            assert laid_out(store, manifest, tmp_path / f"{turn}{letter}") == (letter, letter * 8192)
    assert len(decoded) == 4


def test_its_memory_is_given_back(store, decoded):
    one = commit(store)
    decoded.clear()
    store.manifest(one.id)
    store.release_memory()
    store.manifest(one.id)
    assert len(decoded) == 2


@pytest.mark.parametrize("pack", [1, 1 << 30, -2])
def test_a_table_that_names_a_pack_its_placement_does_not_list_is_refused(store, pack):
    one = commit(store)
    internals = store.internals
    names = internals.placements.read(one.id).packs
    places = np.array([NOWHERE, pack << 32], np.int64)
    table = PageTable(places, np.full(2, NOWHERE, np.int64))
    with OpenPacks(names, internals.packs) as packs, pytest.raises(ObjectCorrupt, match="index"):
        packs.open_packs(table)
