"""Freeing what nothing needs: all of that, in two phases, and never anything else, whenever it is interrupted."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from relive.maintenance import gc
from relive.maintenance.gc import collect, foresee
from relive.maintenance.problems import Kind
from relive.model.commit import CommitId
from relive.store import Store
from store.builders import OLD, commit, contents, is_whole, stage, take_in
from store.series import Service, take

TESTS = Path(__file__).parent.parent


def test_deaths_at_every_change_with_a_committer_beside_lose_nothing(memory_directory):
    done = subprocess.run(
        [sys.executable, "-m", "maintenance.gc_driver", str(memory_directory)],
        env={**os.environ, "PYTHONPATH": str(TESTS)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    deaths, commits = map(int, done.stdout.split())
    # An object, a pack, a placement; a new pack and a placement with their syncs; the dead pack.
    assert deaths >= 8
    assert commits >= 2 * deaths


def forget(store: Store, commit_id: CommitId) -> None:
    """As a crash between removing a manifest and what it names."""
    (store.internals.directory / "manifests" / f"{commit_id}.json").unlink()
    store._index.remove(commit_id)


@pytest.fixture
def useless(store: Store) -> CommitId:
    """A commit that is gone, with a file, a pack and a placement left; another shares a file and stays."""
    kept = commit(store, capture="kept", files={"f": b"shared", "g": b"kept"}, version=OLD).id
    gone = commit(
        store, capture="gone", files={"f": b"shared", "h": b"gone"}, pages=os.urandom(8192), version=OLD
    ).id
    forget(store, gone)
    return kept


def kinds(things) -> list[str]:
    return [thing.kind.value for thing in things]


def test_what_is_useless_is_condemned_first_and_deleted_after_the_grace(store, home, useless, monkeypatch):
    first = foresee(store)
    assert sorted(kinds(first.decision.condemn)) == ["object", "pack", "placement"]
    assert not (home / "condemned").exists()
    assert collect(store).decision == first.decision
    again = collect(store)
    assert (again.decision.condemn, again.decision.delete, again.freed) == ([], [], 0)
    assert again.decision.wait == first.decision.condemn
    assert foresee(store, grace=0).decision.delete == first.decision.condemn
    later = time.time_ns() + int(gc.GRACE * 1e9)
    monkeypatch.setattr(gc.time, "time_ns", lambda: later)
    done = collect(store)
    assert done.decision.delete == first.decision.condemn
    assert done.freed == sum(first.sizes.values()) > 8192
    assert kinds(collect(store).decision.delete) == []
    assert is_whole(store, useless)
    assert (home / "condemned").read_text() == "{}"


def test_a_list_of_the_condemned_that_is_damaged_only_makes_them_wait(store, home, useless):
    collect(store)
    (home / "condemned").write_text('{"nonsense": []}')
    assert len(collect(store).decision.condemn) == 3


def test_what_is_needed_again_is_pardoned(store, useless):
    collect(store)
    again = commit(store, capture="again", files={"h": b"gone"}, version=OLD).id
    assert sorted(kinds(collect(store).decision.wait)) == ["pack", "placement"]
    assert is_whole(store, again)


def test_a_commit_on_its_way_in_is_waited_for(store, home, monkeypatch):
    """GIVEN files and pages that no manifest names yet, WHEN garbage is looked for, THEN they are suspects and stay."""
    files = {"f": b"on its way"}
    staging = stage(store, pages=os.urandom(8192), small={"core-1.img": b"c"}, files=files)
    other = Store(home)
    seen = []
    before = other.internals.lock.held

    def held(*, shared: bool):
        assert not shared
        seen.append(foresee(other, grace=0).decision.delete)
        store_commits.append(take_in(store, staging, files).id)
        return before(shared=False)

    store_commits: list[CommitId] = []
    with store.taking_in():
        monkeypatch.setattr(other.internals.lock, "held", held)
        store.ingest_file(staging.files / "0")
        assert kinds(foresee(other, grace=0).decision.delete) == []
    (staging.files / "0").write_bytes(b"on its way")
    done = collect(other, grace=0)
    assert kinds(seen[0]) == []
    assert done.decision.delete == []
    assert is_whole(store, store_commits[0])
    other.close()


def test_of_a_store_with_a_damaged_commit_no_pack_and_no_file_goes(store, home, useless):
    placement = home / "placements" / useless
    placement.write_bytes(b"junk")
    found = collect(store, grace=0)
    assert kinds(found.decision.delete) == ["placement"]
    assert found.doubtful == [useless]


def test_a_mostly_dead_pack_is_repacked_as_it_was_foreseen(store, monkeypatch):
    monkeypatch.setattr(gc, "_REPACK_FROM", 1 << 12)
    service = Service(pages=60)
    first = take(store, service, None).id
    for pages in service._memory.values():
        pages[:50] += 1_000_003
    service.live()
    second = take(store, service, first).id
    (dead,) = store.internals.placements.read(first).needed()
    assert foresee(store).repacked == []
    store.delete(first)
    foreseen = foresee(store)
    before = sum(path.stat().st_size for path in (store.internals.directory / "packs").iterdir())
    done = collect(store)
    after = sum(path.stat().st_size for path in (store.internals.directory / "packs").iterdir())
    assert foreseen.repacked == done.repacked == [dead]
    assert before - after == done.freed > 0
    assert abs(foreseen.freed - done.freed) < before / 5
    assert contents(store, second)[0] == service.images()


def test_a_restore_beside_repacking_gets_its_pages(store, home, monkeypatch):
    """GIVEN a restore that has read where its pages lie, WHEN they move and the old pack goes, THEN it finds them."""
    monkeypatch.setattr(gc, "_REPACK_FROM", 1 << 12)
    service = Service(pages=60)
    first = take(store, service, None).id
    for pages in service._memory.values():
        pages[:50] += 1_000_003
    service.live()
    second = take(store, service, first).id
    store.delete(first)
    reader = Store(home)
    read, moved = reader.internals.placements.read, []

    def read_then_repack(commit_id: CommitId):
        found = read(commit_id)
        if not moved:
            moved.extend(collect(store).repacked)
        return found

    monkeypatch.setattr(reader.internals.placements, "read", read_then_repack)
    assert contents(reader, second)[0] == service.images()
    assert len(moved) == 1
    reader.close()


def test_what_a_thing_is_for_is_told_by_its_kind(store, useless):
    assert {thing.kind for thing in collect(store, grace=0).decision.delete} == {
        Kind.OBJECT,
        Kind.PACK,
        Kind.PLACEMENT,
    }
