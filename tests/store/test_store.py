"""What the store promises to one process: it gives back what was taken, keeps nothing twice, frees what is dropped."""

from __future__ import annotations

import os
import time

import pytest

from relive.errors import (
    ObjectMissing,
    RefUnknown,
    ReliveError,
)
from relive.model.commit import EntryKind, FileEntry, Layer, LayerKind
from relive.store.objects import hash_bytes

from .builders import SECOND, beyond, commit, contents, is_whole, make_manifest


def pack_files(home):
    return {path.name: path.stat().st_size for path in (home / "packs").iterdir()}


def test_a_commit_is_given_back_bit_for_bit(store):
    one = commit(store, pages=b"\1" * 8192, small={"core-1.img": b"c"}, files={"a/b": b"x", "a/c": b""})
    images, files = contents(store, one.id)
    assert images == {"pages-1.img": b"\1" * 8192, "core-1.img": b"c"}
    assert files == {"a/b": b"x", "a/c": b""}


def test_its_id_is_the_hash_of_its_manifest(store, home):
    one = commit(store)
    assert one.id == hash_bytes((home / "manifests" / f"{one.id}.json").read_bytes())


def test_the_same_commit_taken_in_twice_is_one_though_its_packs_have_random_ids(store, home):
    one = commit(store)
    before = pack_files(home)
    other = commit(store)
    assert one.id == other.id
    assert [line.id for line in store.log()] == [one.id]
    assert pack_files(home).keys() > before.keys()
    store.thin("pay", beyond(1))
    assert len(pack_files(home)) == 1
    assert is_whole(store, one.id)


def test_content_that_is_there_already_is_not_kept_twice(store, home):
    pages, file = os.urandom(1 << 20), os.urandom(1 << 20)
    one = commit(store, capture="1", pages=pages, files={"f": file})
    other = commit(store, capture="2", pages=pages, files={"f": file, "g": file}, parents=[one.id])
    assert sum(pack_files(home).values()) < (len(pages) + len(file)) * 1.01
    assert other.new_bytes < 2500


def test_what_a_commit_is_said_to_have_grown_the_store_by_is_all_of_it(store, home):
    """Pack with its index, placement and manifest."""
    kinds = ("packs", "placements", "manifests", "objects")

    def size() -> int:
        return sum(
            path.stat().st_size for kind in kinds for path in (home / kind).rglob("*") if path.is_file()
        )

    one = commit(store, capture="1")
    before = size()
    other = commit(store, capture="2", pages=b"other" * 999, files={"f": b"x" * 9999}, parents=[one.id])
    assert other.new_bytes == size() - before


def test_packs_cannot_be_written_to(store, home):
    commit(store)
    files = (home / "packs").iterdir()
    assert {path.stat().st_mode & 0o777 for path in files} == {0o400}


def test_nothing_of_the_store_is_open_to_others(store, home):
    assert home.stat().st_mode & 0o077 == 0


def test_an_open_store_has_the_whole_layout(store, home):
    assert {path.name for path in home.iterdir()} >= {
        *(
            "format",
            "lock",
            "objects",
            "packs",
            "placements",
            "manifests",
            "tags",
            "index.sqlite",
            "incoming",
        ),
        *("trees", "laid"),
    }


def test_staging_is_gone_after_discard_and_discarding_twice_is_no_error(store, home):
    staging = store.stage()
    other = os.open(home, os.O_RDONLY)  # takes the number that the first discard gives free
    staging.discard()
    staging.discard()
    os.close(other)
    assert list((home / "incoming").iterdir()) == []


def test_a_commit_whose_file_is_not_in_the_store_is_not_called_durable(store, home):
    """Another process dropped the last commit that had it, between the two steps."""
    entry = FileEntry(path="x", kind=EntryKind.FILE, size=6, object=hash_bytes(b"shared"))
    manifest = make_manifest(layers=[Layer(point="/", kind=LayerKind.OVERLAY, entries=[entry])])
    with pytest.raises(ObjectMissing):
        store.add(manifest)
    assert store.log() == []
    assert list((home / "manifests").iterdir()) == list((home / "packs").iterdir()) == []


def test_files_of_a_commit_that_failed_are_removed(store, home):
    one = commit(store)
    before = pack_files(home)
    staging = store.stage()

    def fail_after_taking() -> None:
        with store.taking_in():
            for number, data in enumerate((b"limit=5\n", b"new content")):
                (staging.files / str(number)).write_bytes(data)
                store.ingest_file(staging.files / str(number))
            store.ingest_images(staging.images)
            raise ReliveError("the manifest cannot be made")

    with pytest.raises(ReliveError, match="cannot be made"):
        fail_after_taking()
    staging.discard()
    assert pack_files(home) == before
    assert list((home / "incoming").iterdir()) == list(home.glob("making/??/*")) == []
    assert is_whole(store, one.id)


def test_durable_time_is_counted_from_the_request(store):
    stored = store.add(make_manifest(), began_monotonic_ns=time.monotonic_ns() - SECOND)
    assert stored.durable_us is not None
    assert 1_000_000 <= stored.durable_us < 10_000_000


# -- dropping ------------------------------------------------------------------------------------------------------------


def test_deleting_frees_only_what_no_other_commit_uses(store, home):
    one = commit(store, capture="1", files={"f": b"shared", "g": b"own of one"})
    other = commit(store, capture="2", files={"f": b"shared"})
    packs = pack_files(home)
    freed = store.delete(one.id)
    gone = sum(size for name, size in packs.items() if name not in pack_files(home))
    assert 0 < gone <= freed
    assert is_whole(store, other.id)
    with pytest.raises(RefUnknown):
        store.manifest(one.id)
    store.delete(other.id)
    assert pack_files(home) == {}
    assert list((home / "placements").iterdir()) == []


def test_deleting_what_is_not_there_is_no_error(store):
    assert store.delete("0" * 64) == 0  # type: ignore[arg-type]


def test_thinning_keeps_the_newest_the_tagged_and_the_pinned(store):
    ids = [commit(store, wall_ns=number, capture=f"{number}", pages=b"%d" % number).id for number in range(6)]
    other = commit(store, name="other", wall_ns=0).id
    store.tag("keep", ids[0])
    assert set(store.thin("pay", beyond(2, {ids[1]}))) == {ids[2], ids[3]}
    assert {line.id for line in store.log()} == {ids[0], ids[1], ids[4], ids[5], other}
    assert all(is_whole(store, line.id) for line in store.log())
