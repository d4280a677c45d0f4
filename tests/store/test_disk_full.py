"""A full disk: a tiny tmpfs is filled at every step of a commit. The error says so, and the store is as it was."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from relive.errors import DiskFull
from relive.store import Store

from .builders import commit, fill_images, is_whole, stage, take_in

PAGE = 4096
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="mounts a file system")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    point = tmp_path / "disk"
    point.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(point)], check=True)
    yield point
    subprocess.run(["umount", "-l", str(point)], check=True)


def free_pages(disk: Path) -> int:
    return os.statvfs(disk).f_bavail


def free_inodes(disk: Path) -> int:
    return os.statvfs(disk).f_ffree


@contextlib.contextmanager
def only_free(disk: Path, pages: int) -> Iterator[None]:
    """Fill the disk up to so many pages."""
    ballast = disk / "ballast"
    ballast.write_bytes(bytes((free_pages(disk) - pages) * PAGE))
    assert free_pages(disk) == pages
    yield
    ballast.unlink()


def picture(home: Path) -> set[str]:
    """All that matters: what there is beside the index's own files, and directories that stay."""
    return {
        str(path.relative_to(home))
        for path in home.rglob("*")
        if not path.name.startswith("index.sqlite")
        and not (path.parent.name in ("objects", "making") and path.is_dir())
    }


def test_a_commit_on_a_disk_of_any_fullness_is_whole_or_not_there(small_disk):
    """GIVEN so many free pages, WHEN a commit is taken in, THEN it succeeds whole, or fails and leaves nothing."""
    home = small_disk / "store"
    store = Store(home)
    old = commit(store, capture="old", files={"f": b"shared"})
    refused = 0
    for free in range(24):
        before, lines = picture(home), store.log()
        files = {"f": b"shared", "g": bytes(3 * PAGE) + b"%d" % free}
        staging = stage(store, pages=b"%d" % free, small={"core-1.img": bytes(2 * PAGE)}, files=files)
        with only_free(small_disk, free):
            try:
                new = take_in(store, staging, files, capture=f"new {free}")
            except DiskFull:
                refused += 1
                assert picture(home) == before
                assert store.log() == lines
            else:
                assert is_whole_when_there_is_space(small_disk, store, new.id)
        store.close()
        store = Store(home)
        assert is_whole(store, old.id)
    assert 0 < refused < 24
    store.close()


def is_whole_when_there_is_space(disk: Path, store: Store, commit_id) -> bool:
    (disk / "ballast").write_bytes(b"")
    return is_whole(store, commit_id)


def test_a_store_cannot_be_made_on_a_full_disk_and_can_once_there_is_space(small_disk):
    home = small_disk / "store"
    with only_free(small_disk, 1), pytest.raises(DiskFull):
        Store(home)
    store = Store(home)
    assert is_whole(store, commit(store).id)
    store.close()


def test_a_tag_on_a_full_disk_is_refused_and_the_old_one_stays(small_disk):
    store = Store(small_disk / "store")
    one, other = commit(store, capture="1"), commit(store, capture="2")
    store.tag("best", one.id)
    with only_free(small_disk, 0), pytest.raises(DiskFull):
        store.tag("best", other.id, force=True)
    assert store.tags() == {"best": one.id}
    store.close()


def test_a_commit_cannot_begin_on_a_disk_without_inodes(tmp_path):
    point = tmp_path / "disk"
    point.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "nr_inodes=40", "tmpfs", str(point)], check=True)
    try:
        store = Store(point / "store")
        staged = []
        for path in range(free_inodes(point) - 2):
            (point / f"{path}").touch()
        with pytest.raises(DiskFull):
            staged.append(store.stage())
        assert staged == []
        store.close()
    finally:
        subprocess.run(["umount", "-l", str(point)], check=True)


def test_laying_out_on_a_full_disk_leaves_no_half_layer(small_disk):
    store = Store(small_disk / "store")
    one = commit(store, files={"big": os.urandom(40 * PAGE)})
    layer = store.manifest(one.id).layers[0]
    with only_free(small_disk, 8), pytest.raises(DiskFull):
        store.files.lay_out_layer(layer)
    assert (store.files.lay_out_layer(layer) / "big").stat().st_size == 40 * PAGE
    store.close()


def test_deleting_works_on_a_full_disk(small_disk):
    """Else there would be no way out."""
    store = Store(small_disk / "store")
    ids = [
        commit(store, capture=f"{number}", pages=os.urandom(PAGE * 32), wall_ns=number).id
        for number in range(4)
    ]
    with only_free(small_disk, 0):
        assert store.delete(ids[0]) >= PAGE * 32
    assert [line.id for line in store.log()] == ids[:0:-1]
    store.close()


def test_images_that_are_not_taken_because_the_disk_is_full_are_still_the_callers(small_disk):
    store = Store(small_disk / "store")
    staging = store.stage()
    fill_images(staging.images, b"p" * PAGE, {"core-1.img": bytes(8 * PAGE)})
    with only_free(small_disk, 2), pytest.raises(DiskFull):
        take_in(store, staging, {})
    assert store.log() == []
    for kind in ("objects", "packs", "placements"):
        assert [path for path in (small_disk / "store" / kind).rglob("*") if path.is_file()] == []
    store.close()


def test_a_parent_that_cannot_be_read_back_is_told_as_a_full_disk(small_disk):
    """What it is compared with was given back, and goes to the disk again."""
    files = {"kept": os.urandom(30_000)}
    with contextlib.closing(Store(small_disk / "store")) as store:
        one = commit(store, pages=os.urandom(40 * PAGE), files=files)
        (kept,) = (e for e in store.manifest(one.id).layers[0].entries if e.path == "kept")
        store.release_disk()
        with only_free(small_disk, 1), pytest.raises(DiskFull), store.taking_in(one.id):
            store.has_object(str(kept.object))
        with store.taking_in(one.id):
            assert store.has_object(str(kept.object))
