"""Whatever is damaged in one copy comes back from the other; nothing that is damaged there is taken."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from relive.maintenance import gc
from relive.maintenance.problems import Kind
from relive.maintenance.repair import repair
from relive.maintenance.source import DirectorySource, store_in
from relive.maintenance.verify import verify
from relive.model.commit import CommitId
from relive.store import Store
from store.builders import OLD, commit, contents, is_whole
from store.series import Service, take
from store.test_damage import flip

from .test_verify import DAMAGES, one_object, pack_of


@pytest.fixture
def two(store: Store) -> tuple[CommitId, CommitId]:
    return (
        commit(store, capture="1", pages=os.urandom(9 * 4096), files={"f": b"one"}, version=OLD).id,
        commit(store, capture="2", pages=os.urandom(9 * 4096), files={"f": b"other"}).id,
    )


@pytest.fixture
def copy(store: Store, home: Path, two, tmp_path: Path) -> Path:
    """The same store elsewhere, while all was well."""
    return Path(shutil.copytree(home, tmp_path / "copy" / "store"))


@pytest.mark.parametrize("damage", DAMAGES)
def test_each_damage_is_healed_from_a_copy(store, two, copy, damage):
    kind, find, harm, _ = DAMAGES[damage]
    before = contents(store, two[0])
    path = find(store, two[0])
    size = path.stat().st_size
    harm(path)
    done = repair(store, DirectorySource(copy))
    assert [(one.kind, one.bytes) for one in done.fetched] == [(kind, size)]
    assert done.left == []
    assert contents(store, two[0]) == before
    assert (
        list(store.internals.incoming.iterdir()) == list(store.internals.directory.glob("making/??/*")) == []
    )
    assert repair(store, DirectorySource(copy)).fetched == []


@pytest.mark.parametrize("damage", DAMAGES)
def test_what_is_damaged_there_too_is_not_taken(store, two, copy, damage):
    _, find, harm, _ = DAMAGES[damage]
    path = find(store, two[0])
    flip(copy / path.relative_to(store.internals.directory), 77)
    harm(path)
    left = path.read_bytes() if path.exists() else None
    done = repair(store, DirectorySource(copy))
    assert [problem.commits for problem in done.left] == [[two[0]]]
    assert (path.read_bytes() if path.exists() else None) == left
    assert is_whole(store, two[1])


def test_a_copy_that_has_other_packs_for_a_commit_gives_them_with_its_placement(
    store, home, tmp_path, monkeypatch
):
    """GIVEN a copy that was repacked, WHEN a pack rots here, THEN the commit comes back out of the copy's packs."""
    monkeypatch.setattr(gc, "_REPACK_FROM", 1 << 12)
    service = Service(pages=60)
    first = take(store, service, None).id
    for pages in service._memory.values():
        pages[:50] += 1_000_003
    service.live()
    second = take(store, service, first).id
    shutil.copytree(home, tmp_path / "copy")
    copy = Store(tmp_path / "copy", store.internals.keyring)
    copy.delete(first)
    assert gc.collect(copy, grace=0).repacked
    copy.close()
    base = pack_of(store, first)
    base.unlink()
    done = repair(store, DirectorySource(tmp_path / "copy"))
    assert {one.kind for one in done.fetched} == {Kind.PACK, Kind.PLACEMENT}
    assert contents(store, second)[0] == service.images()
    assert verify(store, [second], data=True).problems == []
    assert [problem.commits for problem in done.left] == [[first]]


def test_a_placement_that_is_signed_by_a_stranger_is_not_taken(store, two, copy, tmp_path):
    stranger = Store(tmp_path / "stranger" / "store")
    theirs = commit(
        stranger,
        capture="1",
        pages=contents(store, two[0])[0]["pages-1.img"],
        files={"f": b"one"},
        version=OLD,
    ).id
    assert theirs == two[0]
    stranger.close()
    (store.internals.directory / "placements" / two[0]).unlink()
    done = repair(store, DirectorySource(stranger.internals.directory))
    assert (done.fetched, [problem.kind for problem in done.left]) == ([], [Kind.PLACEMENT])
    store.internals.keyring.trust("stranger", stranger.internals.keyring.public_key)
    done = repair(store, DirectorySource(stranger.internals.directory))
    assert ({one.kind for one in done.fetched}, done.left) == ({Kind.PACK, Kind.PLACEMENT}, [])
    assert is_whole(store, two[0])


def test_a_tagged_commit_that_is_gone_altogether_comes_back(store, two, copy):
    store.tag("best", two[0])
    before = contents(store, two[0])
    store.delete(two[0])
    done = repair(store, DirectorySource(copy))
    assert done.left == []
    assert {one.kind for one in done.fetched} == {Kind.MANIFEST, Kind.PLACEMENT, Kind.PACK, Kind.OBJECT}
    assert contents(store, store.resolve("best")) == before
    assert {line.id for line in store.log()} == set(two)


def test_what_nobody_has_is_left_and_named(store, two, tmp_path):
    Store(tmp_path / "empty").close()
    one_object(store, two[0]).unlink()
    done = repair(store, DirectorySource(tmp_path / "empty"))
    assert (done.fetched, [problem.kind for problem in done.left]) == ([], [Kind.OBJECT])


def test_a_source_is_a_store_a_home_or_a_url_of_one(copy, tmp_path, two):
    for text in (str(copy), str(copy.parent), copy.as_uri(), copy.parent.as_uri()):
        found = store_in(text)
        assert found is not None
        assert DirectorySource(found).fetch(Kind.MANIFEST, two[0], tmp_path / "m")
        assert not DirectorySource(found).fetch(Kind.MANIFEST, "0" * 64, tmp_path / "m")
    for text in (str(tmp_path / "nothing"), "s3://bucket/store", "", (copy / "packs").as_uri()):
        assert store_in(text) is None
