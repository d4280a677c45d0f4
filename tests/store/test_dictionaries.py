"""Commits that are compressed against dictionaries of earlier ones: they cost less, come back, and what is damaged is named."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from relive.errors import ObjectCorrupt, ObjectMissing
from relive.maintenance.frame_usage import frames_used, kinds_of_frames
from relive.maintenance.gc import collect
from relive.maintenance.verify import verify
from relive.model.commit import CommitId
from relive.store import Store, sweep
from relive.store.keyring import Keyring
from relive.store.pages import dictionary_policy, ingest, repack
from relive.store.pages.materialize import OpenPacks, PageSource
from relive.store.pages.packcheck import read_frames
from relive.store.pages.packfile import FRAME_PAGES, FrameKind

from .builders import contents
from .series import Service, take

PAGES = (FrameKind.PAGES, FrameKind.WORDS)


@pytest.fixture(autouse=True)
def _every_commit_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The services here write little at a time; a commit of so little adds nothing to a dictionary else."""
    monkeypatch.setattr(dictionary_policy, "_TELLING", 1)


def moving(**options: int) -> Service:
    return Service(pages=100, **({"records": 40, "moved": 40} | options))


def series(store: Store, service: Service, count: int) -> tuple[dict[CommitId, dict[str, bytes]], list[int]]:
    """The images of each commit, and the bytes each added."""
    states, sizes, parent = {}, [], None
    for _ in range(count):
        one = take(store, service, parent)
        parent = one.id
        states[parent] = service.images()
        sizes.append(one.new_bytes)
        service.live()
    return states, sizes


def dictionary_of(store: Store, commit_id: CommitId, what: FrameKind = FrameKind.PAGES) -> str:
    """The pack that has the dictionary which the commit's newest pages or words need."""
    placement = store.internals.placements.read(commit_id)
    with PageSource(placement, store.internals.packs) as source:
        newest = max(pack for pack, kind in source.index.dictionaries if kind == what)
        return placement.packs[source.index.dictionaries[newest, what]] or ""


def flip_frame(store: Store, pack: str, kind: FrameKind) -> None:
    path = store.internals.packs.path(pack)
    frame = next(frame for frame in read_frames(path, pack) if frame.kind == kind)
    data = bytearray(path.read_bytes())
    data[frame.offset + 9] ^= 1
    path.chmod(0o600)
    path.write_bytes(data)


def test_content_that_comes_back_at_other_addresses_is_hardly_kept_again(store, tmp_path, monkeypatch):
    states, sizes = series(store, moving(records=0), 6)
    monkeypatch.setattr(dictionary_policy, "_LEAST", 1 << 30)
    other = Store(tmp_path / "other")
    _, without = series(other, moving(records=0), 6)
    other.close()
    assert sum(sizes[2:]) < sum(without[2:]) / 3
    restarted = Store(store.internals.directory)
    for commit_id, images in states.items():
        assert contents(restarted, commit_id)[0] == images
    restarted.close()


@pytest.mark.parametrize("sealed", [False, True], ids=["plain", "sealed"])
def test_a_series_goes_on_through_restarts_and_key_commits(home, store, sealed, monkeypatch):
    monkeypatch.setattr(ingest, "KEY_EVERY", 5)
    if sealed:
        Keyring(home.parent / "keys").make_store_key()
    service, states, parent = moving(), {}, None
    for number in range(10):
        if number % 3 == 2:
            store.close()
            store = Store(home)
        parent = take(store, service, parent).id
        states[parent] = service.images()
        service.live()
    store.close()
    found = Store(home)
    for commit_id, images in states.items():
        assert contents(found, commit_id)[0] == images
    assert verify(found, data=True).problems == []
    needed = [len(found.internals.placements.read(commit_id).needed()) for commit_id in states]
    assert max(needed) <= 5 + 8 + 2
    found.close()


def test_whatever_is_dropped_and_moved_the_others_come_back(store, monkeypatch):
    """GIVEN packs with dictionaries of which something is not used, THEN they are written anew, and the rest finds them."""
    monkeypatch.setattr(sweep, "_REPACK_FROM", 1)
    monkeypatch.setattr(repack, "_LIVE_LEAST", 1)
    service = moving()
    states, _ = series(store, service, 11)
    before = {dictionary_of(store, commit_id) for commit_id in list(states)[2:]}
    assert len(before) == 3  # the root, and two nodes
    for gone in list(states)[1:9]:
        store.delete(gone)
        del states[gone]
        collect(store, grace=0)
    assert verify(store, data=True).problems == []
    assert before - store.internals.packs.names()
    for commit_id, images in states.items():
        assert contents(store, commit_id)[0] == images
    parent = take(store, service, list(states)[-1]).id
    assert contents(store, parent)[0] == service.images()


@pytest.mark.parametrize("what", PAGES, ids=["pages", "words"])
def test_a_damaged_dictionary_is_named_with_all_commits_that_need_it(store, what):
    states, _ = series(store, moving(), 6)
    newest = list(states)[-1]
    pack = dictionary_of(store, newest, what)
    users = []
    for commit_id in states:
        placement = store.internals.placements.read(commit_id)
        frames = read_frames(store.internals.packs.path(pack), pack)
        first = next(
            number for number, frame in enumerate(frames) if frame.kind == what | FrameKind.DICTIONARY
        )
        if pack in placement.needed() and first in frames_used(placement, pack, store.internals.packs):
            users.append(commit_id)
    assert newest in users and len(users) > 2
    flip_frame(store, pack, what | FrameKind.DICTIONARY)
    problems = verify(store, data=True).problems
    assert {one for problem in problems for one in problem.commits} >= set(users)
    assert any(pack[:12] in problem.message or problem.name == pack for problem in problems)
    fresh = Store(store.internals.directory)
    with pytest.raises(ObjectCorrupt, match=pack[:12]):
        contents(fresh, newest)
    fresh.close()


@pytest.mark.parametrize("what", PAGES, ids=["pages", "words"])
def test_a_damaged_continuation_is_named_with_those_that_need_it_and_no_others(store, what):
    """GIVEN a root and a node that continues it, THEN the root's own followers come back without the node."""
    states, _ = series(store, moving(), 8)
    commits = list(states)
    node = dictionary_of(store, commits[-1], what)
    root = dictionary_of(store, commits[3], what)
    assert node != root
    flip_frame(store, node, what | FrameKind.DICTIONARY | FrameKind.DELTA)
    problems = verify(store, data=True).problems
    named = {one for problem in problems for one in problem.commits}
    assert commits[-1] in named and not named & set(commits[:4])
    fresh = Store(store.internals.directory)
    with pytest.raises(ObjectCorrupt, match=node[:12]):
        contents(fresh, commits[-1])
    assert contents(fresh, commits[3])[0] == states[commits[3]]
    fresh.close()


@pytest.mark.parametrize("newer", [0, 1], ids=["itself", "a newer one"])
def test_a_dictionary_that_continues_itself_on_whatever_way_is_refused(store, newer):
    states, _ = series(store, moving(), 8)
    placement = store.internals.placements.read(list(states)[-1])
    with PageSource(placement, store.internals.packs) as source:
        node = max(source.index.dictionaries.values())
        untrue = dict(source.index.dictionaries) | {(node, FrameKind.PAGES): node + newer}
    refused = pytest.raises(ObjectCorrupt, match=r"continues itself|newer")
    with OpenPacks(placement.packs, store.internals.packs, untrue) as packs, refused:
        packs.own_dictionary(node, FrameKind.PAGES)


def test_a_lost_dictionary_is_missing(store):
    states, _ = series(store, moving(), 4)
    pack = dictionary_of(store, list(states)[-1])
    store.internals.packs.delete(pack)
    fresh = Store(store.internals.directory)
    with pytest.raises(ObjectMissing, match=pack[:12]):
        contents(fresh, list(states)[-1])
    fresh.close()


def test_a_series_heals_with_a_key_commit_where_its_dictionary_is_damaged(store, monkeypatch):
    monkeypatch.setattr(ingest, "KEY_EVERY", 6)
    service = moving()
    states, _ = series(store, service, 6)
    newest = list(states)[-1]
    for what in PAGES:
        flip_frame(store, dictionary_of(store, newest, what), what | FrameKind.DICTIONARY)
    healed = take(store, service, newest)
    fresh = Store(store.internals.directory)
    placement = fresh.internals.placements.read(healed.id)
    assert placement.since_key == 0
    assert contents(fresh, healed.id)[0] == service.images()
    fresh.close()


def test_bytes_of_dictionaries_are_of_use(store):
    states, _ = series(store, moving(), 4)
    newest = list(states)[-1]
    placement = store.internals.placements.read(newest)
    kinds = kinds_of_frames(placement, store.internals.packs)
    for what, kind in zip(PAGES, ("full", "xor"), strict=True):
        pack = dictionary_of(store, newest, what)
        frames = read_frames(store.internals.packs.path(pack), pack)
        own = [number for number, frame in enumerate(frames) if frame.kind == what | FrameKind.DICTIONARY]
        assert own and all(kinds[pack][number] == kind for number in own)


def test_content_that_is_like_nothing_before_is_kept_without_after_a_while(store):
    """Random bytes: a dictionary saves nothing, so it is given up."""
    service, parent = Service(pages=400), None
    for _ in range(4):
        parent = take(store, service, parent).id
        for pages in service._memory.values():
            pages[:60] = np.frombuffer(os.urandom(60 * 4096), np.uint64).reshape(60, 512)
        service.turn += 1
    newest = max(store.internals.packs.names(), key=lambda name: _time(store.internals.packs.path(name)))
    kinds = {frame.kind for frame in read_frames(store.internals.packs.path(newest), newest)}
    assert FrameKind.PAGES | FrameKind.DELTA not in kinds
    assert contents(store, take(store, service, parent).id)[0] == service.images()


def _time(path: Path) -> int:
    return path.stat().st_mtime_ns


def test_a_frame_holds_as_many_pages_as_its_entry_says(store):
    series(store, moving(), 3)
    for name in store.internals.packs.names():
        for frame in read_frames(store.internals.packs.path(name), name):
            assert frame.is_index or 1 <= frame.pages <= FRAME_PAGES
