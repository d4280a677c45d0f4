"""What the store promises to one process: giving back what was taken, names, thinning, an index that can be lost."""

from __future__ import annotations

import itertools
import json
import os
import sqlite3
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from relive.errors import (
    ObjectMissing,
    RefAmbiguous,
    RefUnknown,
    ReliveError,
    StoreVersionUnknown,
    UsageError,
)
from relive.model.commit import EntryKind, FileEntry, Layer, LayerKind
from relive.store import Store
from relive.store.objects import hash_bytes

from .builders import SECOND, beyond, commit, contents, is_whole, make_manifest


def object_files(home):
    return {path.parent.name + path.name for path in (home / "objects").glob("*/*")}


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
    pages = os.urandom(1 << 20)
    one = commit(store, capture="1", pages=pages)
    before = object_files(home)
    other = commit(store, capture="2", pages=pages, parents=[one.id])
    assert object_files(home) == before
    assert sum(pack_files(home).values()) < len(pages) * 1.01
    assert other.new_bytes < 1000


def test_objects_cannot_be_written_to(store, home):
    commit(store)
    files = [*(home / "objects").glob("*/*"), *(home / "packs").iterdir()]
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


def test_a_commit_whose_object_was_dropped_meanwhile_is_not_called_durable(store, home):
    """Another process dropped the last commit that shared it, between the two steps."""
    staging = store.stage()
    (staging.files / "x").write_bytes(b"shared")
    name = store.take_file(staging.files / "x")
    store._objects.delete(name)
    entry = FileEntry(path="x", kind=EntryKind.FILE, size=6, object=name)
    manifest = make_manifest(layers=[Layer(point="/", kind=LayerKind.OVERLAY, entries=[entry])])
    with pytest.raises(ObjectMissing):
        store.add(manifest)
    staging.discard()
    assert store.log() == []
    assert list((home / "manifests").iterdir()) == []


def test_objects_of_a_commit_that_failed_are_removed(store, home):
    one = commit(store)
    before = object_files(home)
    staging = store.stage()

    def fail_after_taking() -> None:
        with store.taking_in():
            for number, data in enumerate((b"limit=5\n", b"new content")):
                (staging.files / str(number)).write_bytes(data)
                store.take_file(staging.files / str(number))
            raise ReliveError("the manifest cannot be made")

    with pytest.raises(ReliveError, match="cannot be made"):
        fail_after_taking()
    staging.discard()
    assert object_files(home) == before
    assert is_whole(store, one.id)


# -- names -------------------------------------------------------------------------------------------------------------


def test_a_commit_is_found_by_its_id_and_by_a_unique_beginning(store):
    one = commit(store)
    for digits in (64, 12, 4):
        assert store.resolve(one.id[:digits]) == one.id


def test_three_digits_are_too_few(store):
    one = commit(store)
    with pytest.raises(RefUnknown):
        store.resolve(one.id[:3])


def test_a_beginning_of_several_ids_is_ambiguous_and_says_so(store):
    ids = sorted(store.add(make_manifest(capture=f"{number}")).id for number in range(900))
    one, other = next((a, b) for a, b in itertools.pairwise(ids) if a[:4] == b[:4])
    with pytest.raises(RefAmbiguous) as caught:
        store.resolve(one[:4])
    assert one[:12] in (caught.value.cause or "")
    assert other[:12] in (caught.value.cause or "")


def test_a_target_name_is_its_newest_commit(store):
    commit(store, wall_ns=2 * SECOND, capture="2")
    newest = commit(store, wall_ns=3 * SECOND, capture="3")
    commit(store, wall_ns=4 * SECOND, name="other")
    commit(store, wall_ns=1 * SECOND, capture="1")
    assert store.resolve("pay") == newest.id
    assert store.resolve("pay@{now}") == newest.id
    assert store.resolve("pay@{}") == newest.id


def test_braces_count_back(store):
    ids = [commit(store, wall_ns=number * SECOND, capture=f"{number}").id for number in (1, 2, 3)]
    assert [store.resolve(f"pay@{{{count}}}") for count in (0, 1, 2)] == ids[::-1]
    with pytest.raises(RefUnknown):
        store.resolve("pay@{3}")


def test_braces_with_a_time_find_what_was_newest_then(store):
    now = time.time_ns()
    old, new = (commit(store, wall_ns=now - ago * 60 * SECOND, capture=f"{ago}").id for ago in (10, 2))
    assert store.resolve("pay@{5 minutes ago}") == old
    assert store.resolve("pay@{1 minute ago}") == new
    assert store.resolve("pay@{2099-01-01 00:00:00}") == new
    with pytest.raises(RefUnknown):
        store.resolve("pay@{1 hour ago}")


def test_a_tag_comes_before_an_id_and_an_id_before_a_target(store):
    one = commit(store, capture="1")
    other = commit(store, capture="2", name=one.id[:6])
    assert store.resolve(one.id[:6]) == one.id
    store.tag(one.id[:6], other.id)
    assert store.resolve(one.id[:6]) == other.id


STRANGE = [
    *(
        "",
        ".",
        "..",
        "/",
        "a/b",
        "../format",
        "tags/x",
        "a\0b",
        "a\nb",
        "\udcff",
        "x" * 300,
        "x" * 5000,
        "@{}",
        "@{1}",
    ),
    *(
        "pay@{",
        "pay@{soon}",
        "pay@{²}",
        "pay@{99999999999999999999}",
        "pay@{-1}",
        "pay@{99999999999 weeks ago}",
    ),
    *("pay@{" + "9" * 5000 + " days ago}", "pay@{0001-01-01}", "pay@{2026-13-01}", "*", "pay;--", "%", "'"),
]


@pytest.mark.parametrize("text", STRANGE, ids=ascii)
def test_any_text_that_names_nothing_is_an_unknown_ref(store, text):
    commit(store)
    with pytest.raises(RefUnknown):
        store.resolve(text)


@pytest.mark.parametrize("text", ["pay@{999999999 weeks ago}", "pay@{9999-12-31}"])
def test_times_beyond_the_index_are_no_error_of_their_own(store, text):
    one = commit(store)
    try:
        assert store.resolve(text) == one.id
    except RefUnknown:
        assert "ago" in text


@pytest.mark.parametrize(
    "name", [*STRANGE[:12], "a b", "a\tb", ".hidden", "a@b", "a:b", "a~1", "a^", "a\u2028b"], ids=ascii
)
def test_a_tag_cannot_be_what_means_something_else(store, home, name):
    one = commit(store)
    with pytest.raises(UsageError):
        store.tag(name, one.id)
    with pytest.raises(RefUnknown):
        store.untag(name)
    assert store.tags() == {}
    assert (home / "format").exists()


def test_a_tag_is_moved_only_by_force(store):
    one, other = commit(store, capture="1"), commit(store, capture="2")
    store.tag("best", one.id)
    with pytest.raises(UsageError, match="exists") as caught:
        store.tag("best", other.id)
    assert one.id[:10] in (caught.value.cause or "")
    store.tag("best", other.id, force=True)
    assert store.tags() == {"best": other.id}


def test_a_tag_needs_a_commit(store):
    with pytest.raises(RefUnknown):
        store.tag("best", "0" * 64)  # type: ignore[arg-type]


def test_a_removed_tag_is_gone_and_its_commit_stays(store):
    one = commit(store)
    store.tag("best", one.id)
    store.untag("best")
    assert store.tags() == {}
    assert is_whole(store, one.id)
    with pytest.raises(RefUnknown):
        store.untag("best")


# -- lookups -----------------------------------------------------------------------------------------------------------


def test_the_commit_before_an_event_is_of_the_same_life(store):
    first = commit(store, sequence=10, capture="1")
    second = commit(store, sequence=20, capture="2")
    commit(store, sequence=15, life="L2", capture="3")
    assert store.before_event("L1", 10) is None
    assert store.before_event("L1", 11) == store.get(first.id)
    assert store.before_event("L1", 20) == store.get(first.id)
    assert store.before_event("L1", 21) == store.get(second.id)


def test_the_log_is_newest_first_of_one_or_all(store):
    one = commit(store, wall_ns=1, capture="1")
    other = commit(store, wall_ns=2, name="other")
    three = commit(store, wall_ns=3, capture="3")
    assert [line.id for line in store.log()] == [three.id, other.id, one.id]
    assert [line.id for line in store.log("pay")] == [three.id, one.id]
    assert [line.id for line in store.log("pay", 1)] == [three.id]
    assert store.log("\udcff") == []


def test_durable_time_is_counted_from_the_request(store):
    stored = store.add(make_manifest(), began_monotonic_ns=time.monotonic_ns() - SECOND)
    assert stored.durable_us is not None
    assert 1_000_000 <= stored.durable_us < 10_000_000


# -- dropping ----------------------------------------------------------------------------------------------------------


def test_deleting_frees_only_what_no_other_commit_uses(store, home):
    one = commit(store, capture="1", files={"f": b"shared", "g": b"own of one"})
    other = commit(store, capture="2", files={"f": b"shared"})
    before = object_files(home)
    packs = pack_files(home)
    freed = store.delete(one.id)
    assert before - object_files(home) == {hash_bytes(b"own of one")}
    gone = sum(size for name, size in packs.items() if name not in pack_files(home))
    assert 0 < gone + len(b"own of one") <= freed
    assert is_whole(store, other.id)
    with pytest.raises(RefUnknown):
        store.manifest(one.id)
    store.delete(other.id)
    assert object_files(home) == set()
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


# -- the index ---------------------------------------------------------------------------------------------------------


def lose(home):
    for path in home.glob("index.sqlite*"):
        path.unlink()


def scribble(home):
    for path in home.glob("index.sqlite-*"):
        path.unlink()
    (home / "index.sqlite").write_bytes(b"no database at all" * 100)


def empty(home):
    lose(home)
    (home / "index.sqlite").touch()


@pytest.mark.parametrize("damage", [lose, scribble, empty])
def test_a_lost_index_is_made_anew(store, home, damage):
    ids = [commit(store, wall_ns=number, capture=f"{number}").id for number in (1, 2)]
    store.tag("best", ids[0])
    store.close()
    damage(home)
    again = Store(home)
    assert [line.id for line in again.log()] == ids[::-1]
    assert again.resolve("best") == ids[0]
    assert again.delete(ids[0]) >= 0
    assert is_whole(again, ids[1])
    again.close()


def test_an_index_that_lost_its_last_lines_catches_up(store, home):
    """SQLite may lose what it wrote last when the power fails; what was reported durable must be found again."""
    one = commit(store)
    store._index.remove(one.id)
    store.close()
    again = Store(home)
    assert [line.id for line in again.log()] == [one.id]
    again.close()


def test_an_index_that_knows_too_much_forgets(store, home):
    one, other = commit(store, capture="1"), commit(store, capture="2", files={"f": b"own"})
    (home / "manifests" / f"{other.id}.json").unlink()
    store.close()
    again = Store(home)
    assert [line.id for line in again.log()] == [one.id]
    assert is_whole(again, one.id)
    again.close()


def test_rebuilding_changes_nothing_but_the_times(store):
    for number in range(3):
        commit(store, wall_ns=number, capture=f"{number}", sequence=number)
    before = [(line.id, line.bytes, line.sequence, line.parent) for line in store.log()]
    assert store.rebuild_index() == 3
    assert [(line.id, line.bytes, line.sequence, line.parent) for line in store.log()] == before


def test_a_store_that_is_busy_can_still_be_read(store, home):
    """A process that holds the lock may be stopped; `relive log` must not wait for it."""
    one = commit(store)
    with store._lock.held(shared=False):
        other = Store(home)
        assert other.resolve(one.id) == one.id
        other.close()


def test_a_locked_index_is_a_busy_store(store, monkeypatch):
    writer = sqlite3.connect(store._directory / "index.sqlite", isolation_level=None)
    writer.execute("BEGIN EXCLUSIVE")
    store._index._database.execute("PRAGMA busy_timeout = 0")
    with pytest.raises(ReliveError) as caught:
        commit(store)
    assert caught.value.code == "store-busy"
    writer.close()
    assert store.log() == []


def test_a_store_may_be_opened_in_one_thread_and_used_in_another(home):
    """As the agent does: opened and closed in its loop, staging in capture threads; the keeper's in its own thread."""
    store = Store(home)
    with ThreadPoolExecutor(1) as keeper:
        one = keeper.submit(commit, store).result()
    staged = []
    thread = threading.Thread(target=lambda: staged.append(store.stage()))
    thread.start()
    thread.join()
    staged[0].discard()
    assert store.resolve(one.id) == one.id
    store.close()


# -- other versions, left-overs ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        '{"version": 3}',
        '{"version": true}',
        "",
        "null",
        "[]",
        '"1"',
        "{}",
        "\0",
        "7",
        b"\xff".decode("latin-1"),
    ],
)
def test_a_store_of_another_version_is_refused_and_left_alone(store, home, text):
    commit(store)
    store.close()
    (home / "format").write_text(text)
    before = sorted(path.name for path in home.rglob("*"))
    with pytest.raises(StoreVersionUnknown) as caught:
        Store(home)
    assert str(home) in caught.value.message
    assert sorted(path.name for path in home.rglob("*")) == before


def test_the_format_is_plain_json(store, home):
    assert json.loads((home / "format").read_text()) == {"version": 2}


def age(path, seconds=60.0):
    past = time.time() - seconds
    os.utime(path, (past, past))


def test_left_overs_in_incoming_are_swept_only_when_old_and_not_locked(store, home):
    held = store.stage()
    (held.images / "pages-1.img").write_bytes(b"in the making")
    incoming = home / "incoming"
    for name in ("crashed", "young"):
        (incoming / name / "images").mkdir(parents=True)
    (incoming / "half-written").write_bytes(b"{")
    for path in (held.directory, incoming / "crashed", incoming / "half-written"):
        age(path)
    Store(home).close()
    assert {path.name for path in incoming.iterdir()} == {held.directory.name, "young"}
    assert (held.images / "pages-1.img").exists()
    held.discard()


def test_layers_laid_out_before_the_last_boot_are_not_trusted(store, home):
    """They are not synced, so a power failure may have left empty files in them."""
    one = commit(store)
    tree = store.lay_out_layer(store.manifest(one.id).layers[0])
    stale = home / "trees" / "00000000-another-boot"
    tree.parent.rename(stale)
    Store(home).close()
    assert not stale.exists()
    assert (store._trees.get(store.manifest(one.id).layers[0])).is_dir()
