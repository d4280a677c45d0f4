"""A pack gives back what was put in, sealed or plain, and nothing else."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from relive.errors import KeyMissing, KeyWrong, ObjectCorrupt
from relive.store.pages.blob_dictionary import BlobDictionary
from relive.store.pages.materialize import OpenPacks
from relive.store.pages.packfile import FRAME_PAGES, HEAD_SIZE
from relive.store.pages.packreader import PackReader
from relive.store.pages.packs import Packs
from relive.store.pages.packwriter import PackWriter
from relive.store.pages.table import NOWHERE, PageTable, slot_places
from relive.store.pages.words import ChangedWords

KEY = bytes(range(32))


def packs_in(directory: Path, key: bytes | None = None) -> Packs:
    (directory / "incoming").mkdir(exist_ok=True)
    return Packs(directory / "packs", directory / "incoming", lambda: key)


def some_pages(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 9, (count, 512)).astype(np.uint64)


def write(packs: Packs, *groups: np.ndarray, blob: bytes = b"blob", dictionary: bytes | None = None):
    """(name, slots of each group, frame of the blob)"""
    writer = PackWriter(packs)
    slots = []
    for pages in groups:
        slots.append(writer.add_pages(pages))
        writer.end_frame()
    frame = writer.add_blob(blob, None if dictionary is None else BlobDictionary(dictionary))
    return writer.finish(), slots, frame


def read(packs: Packs, name: str, slots: np.ndarray) -> np.ndarray:
    wanted = np.unique(slots // FRAME_PAGES)
    with PackReader(packs, name) as reader:
        frames = dict(reader.page_frames(wanted.tolist()))
        return np.array([frames[slot // FRAME_PAGES].pages[slot % FRAME_PAGES] for slot in slots.tolist()])


@pytest.mark.parametrize("key", [None, KEY], ids=["plain", "sealed"])
@pytest.mark.parametrize("count", [1, FRAME_PAGES, FRAME_PAGES + 1, 40 * FRAME_PAGES + 3])
def test_pages_and_blobs_come_back(tmp_path, key, count):
    packs = packs_in(tmp_path, key)
    pages, more = some_pages(count), some_pages(5, seed=1)
    blob, dictionary = os.urandom(3000), os.urandom(50_000)
    name, (slots, others), frame = write(packs, pages, more, blob=blob + dictionary, dictionary=dictionary)
    assert (read(packs, name, slots) == pages).all()
    assert (read(packs, name, others) == more).all()
    with PackReader(packs, name) as reader:
        assert reader.blob(frame, dictionary) == blob + dictionary


def test_what_the_dictionary_holds_is_not_kept_again(tmp_path):
    packs = packs_in(tmp_path)
    dictionary = os.urandom(3 << 20)
    name, _, _ = write(packs, blob=dictionary + b"new", dictionary=dictionary)
    assert (tmp_path / "packs" / name).stat().st_size < 10_000  # three megabytes otherwise


def test_a_sealed_pack_shows_nothing_and_the_same_pages_look_different_each_time(tmp_path):
    packs = packs_in(tmp_path, KEY)
    secret = b"secret of the service. " * 200
    pages = np.frombuffer(secret.ljust(8192, b"."), np.uint64).reshape(-1, 512)
    files = [(tmp_path / "packs" / write(packs, pages, blob=secret)[0]).read_bytes() for _ in range(2)]
    assert all(b"secret" not in data for data in files)
    one, other = (data[HEAD_SIZE : HEAD_SIZE + 40] for data in files)
    assert one != other


def test_a_sealed_pack_needs_its_key(tmp_path):
    name, (slots,), _ = write(packs_in(tmp_path, KEY), some_pages(2))
    with pytest.raises(KeyMissing, match=name[:12]):
        PackReader(packs_in(tmp_path), name)
    with pytest.raises(KeyWrong):
        read(packs_in(tmp_path, bytes(32)), name, slots)


def test_a_plain_pack_can_be_read_where_there_is_a_key(tmp_path):
    """A store may have been plain before."""
    name, (slots,), _ = write(packs_in(tmp_path), some_pages(2))
    assert (read(packs_in(tmp_path, KEY), name, slots) == some_pages(2)).all()


def test_a_frame_that_is_not_there_is_refused(tmp_path):
    packs = packs_in(tmp_path)
    name, _, frame = write(packs, some_pages(2))
    with PackReader(packs, name) as reader:
        for number in (-1, frame + 1):
            with pytest.raises(ObjectCorrupt):
                list(reader.page_frames([number]))
        with pytest.raises(ObjectCorrupt):  # the blob is no pages
            list(reader.page_frames([frame]))


def test_a_discarded_pack_leaves_nothing(tmp_path):
    packs = packs_in(tmp_path)
    writer = PackWriter(packs)
    writer.add_pages(some_pages(200))
    writer.discard()
    assert packs.names() == set()
    assert list(tmp_path.glob("making/??/*")) == list((tmp_path / "incoming").iterdir()) == []


def threads() -> set[str]:
    return set(os.listdir("/proc/self/task"))


def test_writing_and_reading_leave_no_thread_behind(tmp_path):
    """The caller may fork afterwards."""
    assert any(not threads_left_by_use(packs_in(tmp_path)) for number in range(3))


def threads_left_by_use(packs) -> set[str]:
    """The suite has threads too, that come and go; what writing and reading left, they would leave each time."""
    before = threads()
    name, (slots,), _ = write(packs, some_pages(50 * FRAME_PAGES))
    read(packs, name, slots)
    return threads() - before


def test_places_that_are_named_more_than_once_come_back_each_time(tmp_path):
    """As many as are left out between them, so that their number is that of a stretch. Two files may share pages."""
    packs, pages = packs_in(tmp_path), some_pages(4)
    mask = pages % 3 == 0
    writer = PackWriter(packs)
    full, words = writer.add_pages(pages), writer.add_words(ChangedWords.of(pages + 1000, mask))
    name = writer.finish()
    wanted = np.array([0, 0, 2])
    with OpenPacks([name], packs) as source:
        table = PageTable(slot_places(0, full[wanted]), np.full(3, NOWHERE, np.int64))
        assert (source.read(table, np.arange(3)) == pages[wanted]).all()
        table = PageTable(slot_places(0, full[wanted]), slot_places(0, words[wanted]))
        assert (source.read(table, np.arange(3)) == np.where(mask, pages + 1000, pages)[wanted]).all()
