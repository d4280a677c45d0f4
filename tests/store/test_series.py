"""Long series of commits: each comes back bit for bit, costs little, and needs few packs, whatever happened on the way."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import zstandard

from relive.errors import DiskFull, RefUnknown
from relive.model.commit import CommitId
from relive.store import Store, sweep
from relive.store.keyring import Keyring
from relive.store.pages.ingest import KEY_EVERY
from relive.store.pages.materialize import _BATCH
from relive.store.pages.packcheck import read_frames
from relive.store.pages.packfile import FrameKind
from relive.store.pages.placement import Placement

from .builders import beyond, contents
from .series import Service, take

MOST_PACKS = KEY_EVERY + 8  # 31 since the key commit, that itself, and 8 that it left as they were


def needed(store: Store, commit_id: CommitId) -> set[str]:
    return store.internals.placements.read(commit_id).needed()


def test_a_hundred_commits_come_back_bit_for_bit_from_few_packs(store):
    service = Service()
    parent, states, sizes = None, {}, []
    for _ in range(105):
        one = take(store, service, parent)
        parent = one.id
        states[parent] = service.images()
        sizes.append(one.new_bytes)
        service.live()
    assert [line.id for line in store.log()] == list(states)[::-1]
    for commit_id, images in states.items():
        assert contents(store, commit_id)[0] == images
    packs = [len(needed(store, commit_id)) for commit_id in states]
    assert max(packs) <= MOST_PACKS
    assert packs[KEY_EVERY] <= 9 and packs[3 * KEY_EVERY] <= 9
    assert max(packs[2 * KEY_EVERY :]) <= max(packs[: 2 * KEY_EVERY]) + 2
    usual = sorted(sizes[1:])[len(sizes) // 2]
    assert usual < sizes[0] / 10
    # Nearly all of it are the six pages that are written anew, whose content cannot be compressed.
    assert usual < 6 * 4096 * 1.5


def test_equal_states_have_equal_ids_however_they_were_stored(home, tmp_path):
    """GIVEN one store that knows the commit before and one that does not, THEN the ids are the same."""
    ids = []
    for known in (True, False):
        store, service = Store(tmp_path / f"{known}"), Service()
        parent = take(store, service, None).id
        service.live()
        if not known:
            del store._intake._images
            (placement,) = (tmp_path / f"{known}" / "placements").iterdir()
            placement.unlink()
        ids.append(take(store, service, parent).id)
        store.close()
    assert ids[0] == ids[1]


def test_a_store_opened_anew_goes_on_as_cheaply(store, home):
    """What is held of the last commit is lost; it is made again from packs, changed words and their bases included."""
    service = Service()
    parent = take(store, service, None).id
    for _ in range(3):
        service.live()
        parent = take(store, service, parent).id
    store.close()
    sizes = []
    for _ in range(4):
        service.live()
        again = Store(home)
        one = take(again, service, parent)
        parent = one.id
        sizes.append(one.new_bytes)
        assert contents(again, parent)[0] == service.images()
        again.close()
    assert max(sizes) < 6 * 4096 * 1.5


def test_a_page_that_is_as_its_full_version_again_costs_nothing(store):
    service = Service()
    first = take(store, service, None)
    before = service.images()
    page = service._memory[7][100]
    page[3] += 1
    second = take(store, service, first.id)
    page[3] -= 1
    service.turn = 1  # else it would be the first commit once more
    third = take(store, service, second.id)
    assert contents(store, third.id)[0]["pages-3.img"] == before["pages-2.img"]
    own = needed(store, third.id) - needed(store, second.id)
    assert needed(store, third.id) == needed(store, first.id) | own


def test_dropping_any_commits_harms_no_other(store):
    service = Service(pages=100)
    parent, states = None, {}
    for number in range(2 * KEY_EVERY + 4):
        parent = take(store, service, parent).id
        states[parent] = service.images()
        service.live()
        if number % 3 == 2:
            victim = list(states)[-3]
            store.delete(victim)
            del states[victim]
    for commit_id, images in states.items():
        assert contents(store, commit_id)[0] == images
    last = list(states)[-1]
    store.thin("pay", beyond(1))
    assert {path.name for path in (store.internals.directory / "packs").iterdir()} == needed(store, last)
    assert contents(store, last)[0] == states[last]


def test_a_key_commit_heals_a_series_whose_old_pack_is_lost(store):
    """Commits that needed the pack are lost, those from the key commit on are whole."""
    service = Service(pages=100)
    parent, base = None, None
    for _ in range(KEY_EVERY):
        parent = take(store, service, parent).id
        base = base or next(iter(needed(store, parent)))
        service.live()
    # The pages are known, so nothing is noticed until a commit looks whether all packs are there.
    path: Path = store.internals.directory / "packs" / str(base)
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.chmod(0o600)
    path.write_bytes(data)
    healed = take(store, service, parent)
    assert base not in needed(store, healed.id)
    assert contents(store, healed.id)[0] == service.images()


@pytest.mark.parametrize("restored", [True, False], ids=["with restores", "without"])
def test_no_thread_and_no_open_file_is_left_behind(store, restored):
    service = Service(pages=300)
    parent = take(store, service, None).id
    before, threads = len(os.listdir("/proc/self/fd")), set(os.listdir("/proc/self/task"))
    for _ in range(3):
        service.live()
        parent = take(store, service, parent).id
        if restored:
            contents(store, parent)
    assert no_more_than(threads)
    store.release_memory()
    assert len(os.listdir("/proc/self/fd")) <= before + 3  # mapped page files and bases of the last commit


def test_the_space_of_unnamed_files_is_given_back_and_the_next_commit_is_as_small(store):
    """The pages of the last commit lie in files without a name, which ``df`` shows and nobody could have back."""

    def unnamed() -> list[os.DirEntry[str]]:
        return [one for one in os.scandir("/proc/self/fd") if _is_unnamed(one)]

    def _is_unnamed(one: os.DirEntry[str]) -> bool:
        try:
            return os.readlink(one.path).endswith(" (deleted)")
        except OSError:
            return False

    service = Service(pages=300)
    before = len(unnamed())
    parent = take(store, service, None).id
    service.live()
    parent = take(store, service, parent).id
    assert len(unnamed()) > before
    store.release_disk()
    assert len(unnamed()) == before
    service.live()
    third = take(store, service, parent)
    assert third.new_bytes < 12 * 4096
    assert contents(store, third.id)[0] == service.images()


def test_a_pack_that_is_mostly_dead_is_repacked_and_its_commits_stay_whole(store, monkeypatch):
    """GIVEN a series of which nearly all was written anew, WHEN the first commits go, THEN so does what only they used."""
    monkeypatch.setattr(sweep, "_REPACK_FROM", 1 << 16)
    service = Service(pages=500)
    states = {}
    first = take(store, service, None).id
    (base,) = needed(store, first)
    parent = first
    for _ in range(5):
        for pages in service._memory.values():
            pages[:400] = service._random.integers(0, 99, (400, 512))
        service.live()
        parent = take(store, service, parent).id
        states[parent] = service.images()
    assert all(base in needed(store, commit_id) for commit_id in states)
    before = sum(path.stat().st_size for path in (store.internals.directory / "packs").iterdir())
    store.delete(first)
    after = sum(path.stat().st_size for path in (store.internals.directory / "packs").iterdir())
    assert not any(base in needed(store, commit_id) for commit_id in states)
    assert after < before
    for commit_id, images in states.items():
        assert contents(store, commit_id)[0] == images
    # The series goes on as before, with what was known of its last commit and without.
    for again in (store, Store(store.internals.directory)):
        service.live()
        one = take(again, service, parent)
        parent = one.id
        assert one.new_bytes < 6 * 4096 * 1.5
        assert contents(again, parent)[0] == service.images()


def test_repacking_is_left_when_a_placement_cannot_be_read(store, monkeypatch):
    """What that commit needs is not known; it may be healed by being taken in again."""
    monkeypatch.setattr(sweep, "_REPACK_FROM", 1)
    service = Service(pages=50)
    first = take(store, service, None).id
    service.live()
    second = take(store, service, first).id
    path = store.internals.directory / "placements" / second
    before = path.read_bytes()
    path.write_bytes(b"junk")
    store.delete(first)
    path.write_bytes(before)
    assert contents(store, second)[0] == service.images()


def lay_out(store: Store, commit_id: CommitId, directory: Path) -> dict[str, bytes]:
    directory.mkdir()
    store.images.lay_out(store.manifest(commit_id), directory)
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def test_a_commit_laid_out_twice_is_read_from_packs_once_and_checked_each_time(store, home):
    service = Service()
    one = take(store, service, None).id
    assert lay_out(store, one, home / "first") == service.images()
    assert lay_out(store, one, home / "second") == service.images()
    page_files = list((home / "second").glob("pages-*"))
    assert [path.stat().st_nlink for path in page_files] == [3, 3]
    page_files[0].chmod(0o600)
    with page_files[0].open("r+b") as file:
        file.write(b"changed")
    assert lay_out(store, one, home / "third") == service.images()


def test_only_the_commit_laid_out_last_is_kept_and_none_when_one_is_dropped(store, home):
    service = Service()
    one = take(store, service, None).id
    service.live()
    other = take(store, service, one).id
    for number, commit_id in enumerate((one, other)):
        lay_out(store, commit_id, home / f"{number}")
        objects = {image.object for image in store.manifest(commit_id).images if image.name != "bundle"}
        assert set(os.listdir(home / "laid")) == objects
    store.delete(one)
    assert os.listdir(home / "laid") == []


def test_what_is_sealed_is_not_kept_plain(store, home):
    one = take(store, Service(), None).id
    lay_out(store, one, home / "first")
    assert os.listdir(home / "laid") != []
    Keyring(home.parent / "keys").make_store_key()
    lay_out(store, one, home / "second")
    assert os.listdir(home / "laid") == []


def lay_out_while(
    store: Store, commit_id: CommitId, monkeypatch, home: Path, change: Callable[[Store], object]
):
    """Lay it out, with something changed by another process after its placement was read."""
    other, read = Store(home), store.internals.placements.read
    steps = [change]

    def read_and_change(asked: CommitId) -> Placement:
        found = read(asked)
        for step in steps[:1]:
            steps.clear()
            step(other)
        return found

    monkeypatch.setattr(store.internals.placements, "read", read_and_change)
    try:
        return lay_out(store, commit_id, home / "images")
    finally:
        other.close()


def test_a_commit_whose_pages_are_moved_while_it_is_read_comes_back_whole(store, home, monkeypatch):
    monkeypatch.setattr(sweep, "_REPACK_FROM", 1)
    service = Service(pages=60)
    first = take(store, service, None).id
    (base,) = needed(store, first)
    for pages in service._memory.values():
        pages[:55] += np.uint64(1_000_003)
    service.live()
    second = take(store, service, first).id
    found = lay_out_while(store, second, monkeypatch, home, lambda other: other.delete(first))
    assert found == service.images()
    assert base not in needed(store, second)


def test_a_commit_that_is_dropped_while_it_is_read_is_unknown_not_damaged(store, home, monkeypatch):
    one = take(store, Service(pages=10), None).id
    with pytest.raises(RefUnknown):
        lay_out_while(store, one, monkeypatch, home, lambda other: other.delete(one))


def test_a_commit_of_many_parts_comes_back_whatever_lies_across_their_borders(store):
    """GIVEN page files of several batches, with frames across each border, full, as changed words, zero and out of order."""
    random = np.random.default_rng(3)
    pages = 2 * _BATCH + 77
    service = Service(pages=pages)
    parent = take(store, service, None).id
    for _ in range(3):
        for memory in service._memory.values():
            memory[random.choice(pages, 700, replace=False), 5] += np.uint64(1)
            memory[random.choice(pages, 300, replace=False)] = 0
            memory[_BATCH - 40 : _BATCH + 40, 7] += np.uint64(1)
        service.live()
        parent = take(store, service, parent).id
        assert contents(store, parent)[0] == service.images()
    restarted = Store(store.internals.directory)
    service.live()
    again = take(restarted, service, parent)
    assert contents(restarted, again.id)[0] == service.images()
    # Moved apart: each batch needs frames from all over the pack.
    for memory in service._memory.values():
        memory[:] = memory[random.permutation(pages)]
    assert contents(restarted, take(restarted, service, again.id).id)[0] == service.images()
    restarted.close()


def record_series(store: Store) -> dict[CommitId, tuple[dict[str, bytes], int]]:
    """The images of each commit, and the bytes it brought."""
    service, parent, found = Service(pages=400, records=60), None, {}
    for _ in range(12):
        one = take(store, service, parent)
        parent = one.id
        found[parent] = service.images(), one.new_bytes
        service.live()
    return found


def test_records_that_take_the_place_of_others_are_kept_as_they_are_not_as_differences(store):
    """What compresses well is not made noise by the XOR with what was there before; and all of it comes back."""
    states = record_series(store)
    ids = list(states)
    (first, before), (second, added) = states[ids[0]], states[ids[1]]
    assert before > added
    pages = [name for name in first if name.startswith("pages-")]
    # The numbers of the page files are others each time, their order is not.
    others = sorted(name for name in second if name.startswith("pages-"))
    xored = [
        np.frombuffer(first[old], np.uint64) ^ np.frombuffer(second[new], np.uint64)
        for old, new in zip(sorted(pages), others, strict=True)
    ]
    as_differences = sum(len(zstandard.compress(some.tobytes(), 3)) for some in xored)
    assert added < as_differences * 0.9
    (newest,) = needed(store, ids[-1]) - needed(store, ids[-2])
    kinds = {frame.kind for frame in read_frames(store.internals.packs.path(newest), newest)}
    assert any(kind & FrameKind.WORDS for kind in kinds)
    restarted = Store(store.internals.directory)
    assert all(contents(restarted, commit_id)[0] == images for commit_id, (images, _) in states.items())
    restarted.close()


def test_what_the_next_commit_is_not_compared_with_is_let_go(store):
    service = Service(pages=300)
    parent = take(store, service, None).id
    store.release_memory()
    mapped = Path("/proc/self/maps").read_text().count("(deleted)")
    for _ in range(3):
        service.live()
        parent = take(store, service, parent).id
        store.release_memory()
        assert Path("/proc/self/maps").read_text().count("(deleted)") <= mapped + 1  # the bases of changes


def no_more_than(threads: set[str]) -> bool:
    """Threads that are not among these end; the kernel lists one for a moment after it was joined."""
    deadline = time.monotonic() + 10
    while not set(os.listdir("/proc/self/task")) <= threads:
        if time.monotonic() > deadline:
            return False
        time.sleep(0.001)
    return True


def test_a_full_disk_is_told_by_who_makes_a_page_file_and_its_thread_is_gone(store, tmp_path, monkeypatch):
    service = Service(pages=3 * _BATCH)
    one = take(store, service, None)
    threads = set(os.listdir("/proc/self/task"))

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "no space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(DiskFull):
        store.images.lay_out(store.manifest(one.id), tmp_path)
    assert no_more_than(threads)
