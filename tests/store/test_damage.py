"""Damaged and hostile commits: refused by a declared error, nothing of them returned, nothing outside touched."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import msgpack
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from relive.errors import (
    ObjectCorrupt,
    ObjectMissing,
    RefUnknown,
    ReliveError,
    SignatureInvalid,
    StoreError,
)
from relive.model.commit import CommitId, EntryKind, FileEntry, ImageFile, Layer, LayerKind
from relive.store import Store
from relive.store.layer_cache import materialize_layer
from relive.store.manifests import canonical
from relive.store.objects import Objects, hash_bytes
from relive.store.pages.materialize import PageSource
from relive.store.pages.packcheck import read_frames
from relive.store.pages.packfile import FRAME_PAGES

from .builders import beyond, commit, contents, is_whole, make_manifest

within = settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at % len(data)] ^= 1 << (at % 8)
    path.chmod(0o600)
    path.write_bytes(data)


def object_path(store: Store, name: str) -> Path:
    return store.internals.objects.path(name)


# -- damage ------------------------------------------------------------------------------------------------------------


def pack_path(store: Store) -> Path:
    (path,) = (store.internals.directory / "packs").iterdir()
    return path


@within
@given(at=st.integers(0, 1_000_000))
def test_a_flipped_bit_in_a_pack_is_reported_wherever_it_is_and_never_returned(tmp_path_factory, at):
    store = Store(tmp_path_factory.mktemp("damage") / "store")
    one = commit(store, pages=os.urandom(9 * 4096))
    path = pack_path(store)
    flip(path, at)
    with pytest.raises(ObjectCorrupt, match=path.name[:12]):
        contents(store, one.id)
    store.close()


@within
@given(at=st.integers(0, 10_000))
def test_a_flipped_bit_in_a_placement_is_reported_wherever_it_is(tmp_path_factory, at):
    """The signature is checked as well, so that a fitting checksum does not help."""
    store = Store(tmp_path_factory.mktemp("damage") / "store")
    one = commit(store)
    flip(store.internals.directory / "placements" / one.id, at)
    with pytest.raises((ObjectCorrupt, SignatureInvalid), match=one.id[:10]):
        contents(store, one.id)
    store.close()


@pytest.mark.parametrize("length", [0, 10, 40, 1000])
def test_a_pack_that_is_cut_off_is_damaged_and_a_lost_one_is_missing(store, length):
    one = commit(store)
    path = pack_path(store)
    path.chmod(0o600)
    os.truncate(path, min(length, path.stat().st_size - 1))
    with pytest.raises(ObjectCorrupt, match=path.name[:12]):
        contents(store, one.id)
    path.unlink()
    with pytest.raises(ObjectMissing, match=path.name[:12]):
        contents(store, one.id)


def test_a_placement_of_another_commit_does_not_fit(store, home):
    """Else a commit could be given back as another one, by who can write to the store."""
    one, other = commit(store, capture="1"), commit(store, capture="2", pages=b"other")
    (home / "placements" / one.id).write_bytes((home / "placements" / other.id).read_bytes())
    with pytest.raises(ObjectCorrupt, match=one.id[:10]):
        contents(store, one.id)
    (home / "placements" / one.id).unlink()
    with pytest.raises(ObjectMissing, match=one.id[:10]):
        contents(store, one.id)


def test_a_damaged_placement_keeps_all_packs_until_its_commit_is_dropped(store, home):
    """What it needs is not known."""
    one, other = commit(store, capture="1"), commit(store, capture="2", pages=b"other")
    flip(home / "placements" / one.id, 50)
    store.delete(other.id)
    assert len(list((home / "packs").iterdir())) == 2
    store.delete(one.id)
    assert list((home / "packs").iterdir()) == []


def frame_of(store: Store, commit_id: CommitId) -> tuple[Path, int]:
    """Where the first frame of the commit's files begins: the pack, and the byte."""
    placement = store.internals.placements.read(commit_id)
    with PageSource(placement, store.internals.packs) as source:
        (place, *_) = source.index.contents.table.full.tolist()
    pack, frame = place >> 32, (place & 0xFFFFFFFF) // FRAME_PAGES
    path = store.internals.packs.path(placement.packs[pack] or "")
    return path, read_frames(path, path.name)[frame].offset


@pytest.mark.parametrize("size", [7, 1 << 17], ids=["small", "large"])
def test_a_flipped_bit_in_a_file_is_reported_and_never_returned(store, size):
    one = commit(store, files={"f": os.urandom(size)})
    layer = store.manifest(one.id).layers[0]
    path, begin = frame_of(store, one.id)
    flip(path, begin + 3)
    with pytest.raises(ObjectCorrupt, match=path.name[:12]):
        store.files.content(layer.entries[0])
    with pytest.raises(ObjectCorrupt, match=path.name[:12]):
        store.files.lay_out_layer(layer)
    assert list((store.files._layer_cache._directory).iterdir()) == []


def test_a_content_that_its_pages_do_not_make_is_refused(store):
    """Every frame is as it was written, and signed; what comes of them is still checked against the content's name."""
    one = commit(store, files={"f": b"content", "g": b"another"})
    entries = store.manifest(one.id).layers[0].entries
    full = store.files.contents._find(entries[0].object).contents.table.full
    full[:] = full[::-1].copy()
    for entry in entries:
        with pytest.raises(ObjectCorrupt, match=str(entry.object)[:12]):
            store.files.content(entry)


@within
@given(at=st.integers(0, 10_000))
def test_a_flipped_bit_in_a_manifest_is_reported_wherever_it_is(tmp_path_factory, at):
    store = Store(tmp_path_factory.mktemp("damage") / "store")
    one = commit(store)
    flip(store.internals.directory / "manifests" / f"{one.id}.json", at)
    with pytest.raises(ObjectCorrupt, match=one.id[:10]):
        store.manifest(one.id)
    store.close()


def test_a_cut_pack_and_a_lost_one_are_told_apart(store):
    cut = commit(store, capture="1", files={"f": b"content"})
    lost = commit(store, capture="2", files={"g": b"other"})
    entries = [store.manifest(one.id).layers[0].entries[0] for one in (cut, lost)]
    path, _ = frame_of(store, cut.id)
    frame_of(store, lost.id)[0].unlink()
    path.chmod(0o600)
    path.write_bytes(b"")
    for entry, error in zip(entries, (ObjectCorrupt, ObjectMissing), strict=True):
        with pytest.raises(error):
            store.files.content(entry)


def test_a_file_whose_pack_is_lost_is_kept_anew_by_the_next_commit(store):
    one = commit(store, capture="1", files={"f": b"content"})
    frame_of(store, one.id)[0].unlink()
    other = commit(store, capture="2", files={"f": b"content"}, parents=[one.id])
    assert is_whole(store, other.id)


def test_images_that_rotted_are_healed_when_the_same_commit_is_taken_in_again(store):
    one = commit(store)
    flip(pack_path(store), 100)
    commit(store)
    assert is_whole(store, one.id)


def test_a_parent_that_cannot_be_read_back_does_not_harm_its_child(store, home):
    """All is kept anew then."""
    one = commit(store, capture="1")
    flip(pack_path(store), 100)
    store.close()
    again = Store(home)
    other = commit(again, capture="2", parents=[one.id])
    assert is_whole(again, other.id)
    again.close()


def test_a_damaged_commit_does_not_hide_the_others(store, home):
    one, other = commit(store, capture="1"), commit(store, capture="2")
    flip(home / "manifests" / f"{one.id}.json", 5)
    store.close()
    for path in home.glob("index.sqlite*"):
        path.unlink()
    again = Store(home)
    assert [line.id for line in again.log()] == [other.id]
    assert is_whole(again, other.id)
    again.close()


def test_a_damaged_tag_is_refused_by_name_and_does_not_stop_thinning(store, home):
    one = commit(store)
    store.tag("best", one.id)
    (home / "tags" / "best").write_text("../../etc/passwd")
    with pytest.raises(ObjectCorrupt, match="best"):
        store.resolve("best")
    assert store.tags() == {}
    assert store.thin("pay", beyond(1)) == []


# -- hostile manifests -------------------------------------------------------------------------------------------------


def plant(home: Path, data: bytes) -> CommitId:
    """Put bytes there as a manifest whose id fits, as one that was pulled from elsewhere does."""
    commit_id = CommitId(hash_bytes(data))
    (home / "manifests" / f"{commit_id}.json").write_bytes(data)
    return commit_id


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda below: st.lists(below, max_size=3) | st.dictionaries(st.text(max_size=5), below, max_size=3),
    max_leaves=10,
)


@within
@given(data=st.binary(max_size=60) | json_values.map(lambda value: repr(value).encode(errors="replace")))
def test_junk_with_a_fitting_id_is_no_manifest(tmp_path_factory, data):
    store = Store(tmp_path_factory.mktemp("junk") / "store")
    commit_id = plant(store.internals.directory, data)
    with pytest.raises(ObjectCorrupt):
        store.manifest(commit_id)
    assert store.rebuild_index() == 0
    store.close()


def test_a_bomb_of_nested_json_is_no_manifest(store, home):
    commit_id = plant(home, b"[" * 100_000)
    with pytest.raises(ObjectCorrupt):
        store.manifest(commit_id)


@pytest.mark.parametrize("name", ["../victim", "/etc/hostname", "", "..", "a" * 63, "../../" + "a" * 58])
def test_an_object_name_that_leads_elsewhere_is_refused_before_it_is_a_path(store, home, name):
    """Else dropping the commit would remove that file."""
    victim = home / "victim"
    victim.write_text("keep me")
    data = canonical(make_manifest(images=[ImageFile(name="x", size=1, object="a" * 64)]))
    commit_id = plant(home, data.replace(b"a" * 64, name.encode()))
    with pytest.raises(ObjectCorrupt):
        store.manifest(commit_id)
    assert store.rebuild_index() == 0
    store.delete(commit_id)
    assert victim.exists()


BAD_NAMES = ["../x", "/tmp/relive-x", "a/b", "", ".", "..", "a\0b"]


@pytest.mark.parametrize("name", BAD_NAMES, ids=ascii)
def test_an_image_name_that_is_a_path_is_refused(store, home, name):
    one = commit(store)
    pages = store.manifest(one.id).images[0]
    hostile = make_manifest(images=[pages.model_copy(update={"name": name})])
    directory = home / "images"
    directory.mkdir()
    with pytest.raises(ObjectCorrupt):
        store.images.lay_out(hostile, directory)
    assert list(directory.iterdir()) == []


def bundle_of(store: Store, data: bytes) -> ImageFile:
    staging = store.stage()
    (staging.files / "b").write_bytes(data)
    name = store.internals.objects.ingest(staging.files / "b")
    staging.discard()
    return ImageFile(name="bundle", size=len(data), object=name)


def lay_out_bundle(store: Store, directory: Path, data: bytes, *more: ImageFile) -> None:
    """As a commit of version 1, whose bundle is an object that can be put there."""
    directory.mkdir()
    manifest = make_manifest(images=[*more, bundle_of(store, data)])
    store.images.lay_out(manifest.model_copy(update={"version": 1}), directory)


@pytest.mark.parametrize("name", BAD_NAMES, ids=ascii)
def test_a_name_in_the_bundle_that_is_a_path_is_refused(store, home, name):
    with pytest.raises(ObjectCorrupt):
        lay_out_bundle(store, home / "images", msgpack.packb({name: b"x"}))


@pytest.mark.parametrize(
    "value",
    [
        *({1: b"x"}, {b"a": b"x"}, {"a": "text"}, {"a": None}, {"a": {"b": b"x"}}, {None: b"x"}),
        *(
            [],
            None,
            7,
            "text",
            b"bytes",
            msgpack.Timestamp(0),
            msgpack.ExtType(5, b"x"),
            {"a": msgpack.ExtType(5, b"x")},
        ),
    ],
    ids=repr,
)
def test_a_bundle_of_other_types_is_refused(store, home, value):
    with pytest.raises(ObjectCorrupt):
        lay_out_bundle(store, home / "images", msgpack.packb(value))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x81",
        b"\xc1",
        b"\x91" * 100_000,
        b"\xdf\xff\xff\xff\xff",
        b"\xc6\xff\xff\xff\xff",
        b"\xdd\xff\xff\xff\xff",
        b"\x80\x80",
    ],
    ids=lambda data: ascii(data[:6]),
)
def test_a_msgpack_bomb_is_refused(store, home, data):
    with pytest.raises(ObjectCorrupt):
        lay_out_bundle(store, home / "images", data)


@within
@given(data=st.binary(max_size=40))
def test_any_bytes_in_place_of_a_bundle_give_a_declared_error(tmp_path_factory, data):
    home = tmp_path_factory.mktemp("bundle") / "store"
    store = Store(home)
    try:
        lay_out_bundle(store, home / "images", data)
    except ReliveError:
        pass
    else:
        assert all(path.parent == home / "images" for path in (home / "images").rglob("*"))
    store.close()


def test_a_bundle_cannot_write_into_a_page_file(store, home):
    """Page files of version 1 are laid out as links to the objects themselves."""
    pages = bundle_of(store, b"pages").model_copy(update={"name": "pages-1.img"})
    with pytest.raises(StoreError):
        lay_out_bundle(store, home / "images", msgpack.packb({pages.name: b"evil"}), pages)
    assert object_path(store, pages.object).read_bytes() == b"pages"


# -- hostile layers ----------------------------------------------------------------------------------------------------


@pytest.fixture
def objects(tmp_path: Path) -> Objects:
    return Objects(tmp_path / "objects")


@pytest.fixture
def evil(objects: Objects, tmp_path: Path) -> str:
    (tmp_path / "evil").write_bytes(b"evil")
    return objects.ingest(tmp_path / "evil")


def try_out(objects: Objects, tmp_path: Path, *entries: FileEntry) -> Path:
    directory = tmp_path / "layer"
    directory.mkdir()
    layer = Layer(point="/", kind=LayerKind.OVERLAY, entries=list(entries))
    materialize_layer(layer, directory, lambda name, target: shutil.copyfile(objects.verified(name), target))
    return directory


def entry(path: str, kind: EntryKind = EntryKind.FILE, **facts: Any) -> FileEntry:
    return FileEntry(path=path, kind=kind, **{"mode": 0o644} | facts)


@pytest.mark.parametrize(
    "path", ["../victim", "/victim", "a/../../victim", "..", ".", "", "./..", "a/..", "x\0y"], ids=ascii
)
@pytest.mark.parametrize("kind", EntryKind)
def test_a_path_that_leads_out_of_the_layer_is_refused(objects, evil, tmp_path, path, kind):
    with pytest.raises(ObjectCorrupt, match="names a file"):
        try_out(objects, tmp_path, entry("a", EntryKind.DIRECTORY), entry(path, kind, object=evil, link="x"))
    assert not (tmp_path / "victim").exists()


def test_a_path_below_a_link_of_the_commit_is_refused(objects, evil, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    with pytest.raises(ObjectCorrupt):
        try_out(objects, tmp_path, entry("a", EntryKind.LINK, link=str(outside)), entry("a/x", object=evil))
    assert list(outside.iterdir()) == []


@pytest.mark.parametrize("kind", EntryKind)
def test_a_second_entry_does_not_write_through_a_link_of_the_first(objects, evil, tmp_path, kind):
    victim = tmp_path / "victim"
    victim.write_bytes(b"keep me")
    facts = victim.stat()
    with pytest.raises(ObjectCorrupt):
        try_out(
            objects,
            tmp_path,
            entry("a", EntryKind.LINK, link=str(victim)),
            entry("a", kind, object=evil, link="y", mode=0o777, uid=1),
        )
    assert victim.read_bytes() == b"keep me"
    assert (victim.stat().st_mode, victim.stat().st_uid) == (facts.st_mode, facts.st_uid)


@pytest.mark.parametrize(
    "facts",
    [
        {"object": None},
        {"uid": 2**70},
        {"uid": -5},
        {"mtime_ns": 2**200},
        {"mode": 2**40},
        {"attributes": {"user.a": "no hexadecimal"}},
        {"attributes": {"trusted.overlay.redirect": b"/etc".hex()}},
        {"attributes": {"trusted.overlay.metacopy": ""}},
        {"attributes": {"": "00"}},
        {"attributes": {"nonsense": "00"}},
        {"object": "0" * 64},
    ],
    ids=repr,
)
def test_facts_that_no_capture_writes_give_a_declared_error(store, evil, facts):
    value = {"object": None, **facts}
    if "object" not in facts:
        staging = store.stage()
        (staging.files / "f").write_bytes(b"x")
        value["object"] = store.ingest_file(staging.files / "f")
        staging.discard()
    layer = Layer(point="/", kind=LayerKind.OVERLAY, entries=[entry("f", **value)])
    with pytest.raises((StoreError, RefUnknown)):
        store.files.lay_out_layer(layer)
    assert list(store.files._layer_cache._directory.iterdir()) == []


def test_an_entry_without_its_directory_gives_a_declared_error(store):
    layer = Layer(point="/", kind=LayerKind.OVERLAY, entries=[entry("a/b", EntryKind.PIPE)])
    with pytest.raises(StoreError):
        store.files.lay_out_layer(layer)


def test_kept_pages_are_given_out_by_what_the_manifest_says_of_them(store, home, tmp_path):
    """GIVEN a commit whose placement is gone; WHEN its pages are kept of the last branch, THEN nothing else is read for them."""
    one = commit(store)
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    manifest = store.manifest(one.id)
    store.images.lay_out(manifest, first)
    (home / "placements" / one.id).unlink()
    store.images.lay_out_page_files(manifest, second)
    assert (second / "pages-1.img").read_bytes() == (first / "pages-1.img").read_bytes() == b"page" * 1024
    (first / "pages-1.img").write_bytes(b"else" * 1024)  # and what is kept, as it has the same inode
    (second / "pages-1.img").unlink()
    with pytest.raises(ObjectMissing, match=one.id[:10]):
        store.images.lay_out_page_files(manifest, second)
    assert not (second / "pages-1.img").exists()


def test_page_files_take_the_place_of_what_is_there(store, tmp_path):
    """GIVEN a directory with a file of that name, as a second attempt finds it or a bundle from elsewhere makes it."""
    manifest = store.manifest(commit(store).id)
    store.images.lay_out(manifest, tmp_path)
    (tmp_path / "pages-1.img").unlink()
    (tmp_path / "pages-1.img").write_bytes(b"else")
    store.images.lay_out_page_files(manifest, tmp_path)
    assert (tmp_path / "pages-1.img").read_bytes() == b"page" * 1024


def test_pages_do_not_take_the_place_of_an_image_that_was_checked(store, tmp_path):
    """GIVEN a manifest from elsewhere that calls a file of pages as a small image is called."""
    manifest = store.manifest(commit(store).id)
    store.images.lay_out(manifest, tmp_path)
    hostile = manifest.model_copy(
        update={
            "images": [
                one.model_copy(update={"name": one.name.replace("pages-1.img", "core-1.img")})
                for one in manifest.images
            ]
        }
    )
    (tmp_path / "core-1.img").write_bytes(b"checked")
    with pytest.raises(ObjectCorrupt, match=r"core-1\.img"):
        store.images.lay_out_page_files(hostile, tmp_path)
    assert (tmp_path / "core-1.img").read_bytes() == b"checked"


def test_an_image_called_by_a_way_out_is_not_made(store, tmp_path):
    kept = store.manifest(commit(store).id)
    hostile = kept.model_copy(
        update={"images": [one.model_copy(update={"name": "../out.img"}) for one in kept.images]}
    )
    with pytest.raises(ObjectCorrupt, match=r"\.\./out\.img"):
        store.images.lay_out_page_files(hostile, tmp_path)
    assert not (tmp_path.parent / "out.img").exists()
