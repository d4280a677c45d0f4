"""A store of version 1, as the Relive of that time wrote it (files/version1), is read, and goes on as version 7."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from relive.errors import ObjectCorrupt
from relive.store import Store

from .builders import beyond, commit, contents

FILES = Path(__file__).parent / "files" / "version1"
SMALL = {"core-1.img": b"core", "files.img": b"files"}


@pytest.fixture
def old(home):
    shutil.copytree(FILES, home)
    store = Store(home)
    yield store
    store.close()


def test_it_opens_and_names_lists_and_gives_back_what_it_holds(old):
    two, one = old.log("pay")
    assert old.resolve("good") == one.id
    assert (two.parent, two.sequence) == (one.id, 20)
    assert contents(old, one.id) == (
        {"pages-1.img": b"page of one. " * 700, **SMALL},
        {"etc/pay.conf": b"limit=5\n"},
    )
    assert contents(old, two.id)[0]["pages-1.img"] == b"page of two. " * 700


def test_page_files_are_not_copied_when_laid_out(old, home):
    directory = home / "images"
    directory.mkdir()
    old.images.lay_out(old.manifest(old.resolve("good")), directory)
    assert (directory / "pages-1.img").stat().st_nlink == 2


def test_reading_leaves_its_version_and_the_first_commit_raises_it(old, home):
    one = old.resolve("good")
    contents(old, one)
    old.tag("best", one)
    assert json.loads((home / "format").read_text()) == {"version": 1}
    new = commit(
        old, capture="new", wall_ns=2_000_000_000 * 10**9, parents=[one], pages=b"page of one. " * 700
    )
    assert json.loads((home / "format").read_text()) == {"version": 7}
    assert old.manifest(new.id).version == 4
    assert contents(old, new.id)[0]["pages-1.img"] == contents(old, one)[0]["pages-1.img"]


def test_dropping_old_and_new_commits_leaves_nothing_behind(old, home):
    commit(old, capture="new", parents=[old.resolve("good")])
    old.untag("good")
    assert len(old.thin("pay", beyond(0))) == 3
    for kind in ("objects", "packs", "placements", "manifests"):
        assert [path for path in (home / kind).rglob("*") if path.is_file()] == []


def test_a_flipped_bit_in_a_whole_page_file_is_reported_and_never_returned(old, home):
    one = old.resolve("good")
    name = old.manifest(one).images[0].object
    path = home / "objects" / name[:2] / name[2:]
    data = bytearray(path.read_bytes())
    data[5000] ^= 4
    path.write_bytes(data)
    with pytest.raises(ObjectCorrupt, match=name[:12]):
        contents(old, one)
