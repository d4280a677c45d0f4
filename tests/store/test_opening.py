"""What opening a store does: other versions are refused, what crashes and boots left over is swept."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from relive.errors import (
    StoreVersionUnknown,
)
from relive.store import Store
from relive.store.staging import SpareStagings

from .builders import commit, is_whole


@pytest.mark.parametrize(
    "text",
    [
        '{"version": 8}',
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


def test_a_store_of_version_2_is_read_and_becomes_version_5_with_the_next_commit(store, home):
    one = commit(store, capture="1")
    store.close()
    (home / "format").write_text('{"version": 2}')
    again = Store(home)
    assert is_whole(again, one.id)
    assert json.loads((home / "format").read_text()) == {"version": 2}
    assert is_whole(again, commit(again, capture="2", parents=[one.id]).id)
    assert json.loads((home / "format").read_text()) == {"version": 7}
    again.close()


def test_the_format_is_plain_json(store, home):
    assert json.loads((home / "format").read_text()) == {"version": 7}


def age(path, seconds=60.0):
    past = time.time() - seconds
    os.utime(path, (past, past))


BUSY = """
import sys, time
from pathlib import Path
from relive.store import Store
from relive.store.atomic_io import FreshFile
store = Store(Path(sys.argv[1]))
staging = store.stage()
(staging.files / "copy").write_bytes(bytes(1000))
pack = FreshFile(store.internals.incoming, "pack")
print("begun", flush=True)
time.sleep(1000)
"""


def on_the_way(home: Path) -> set[Path]:
    return {*(home / "incoming").iterdir(), *(home / "making").glob("??/*")}


def test_what_a_killed_process_had_begun_is_swept_at_once(store, home):
    """Copies of a service's files may be large: nothing of them is left beside the next commit."""
    with subprocess.Popen([sys.executable, "-c", BUSY, home], stdout=subprocess.PIPE, text=True) as busy:
        assert busy.stdout is not None and busy.stdout.readline() == "begun\n"
        begun = on_the_way(home)
        Store(home).close()
        assert on_the_way(home) == begun and len(begun) == 2
        busy.kill()
    Store(home).close()
    assert not on_the_way(home)


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


def test_emptied_staging_is_used_again_under_another_name_and_swept_when_its_holder_dies(store, home):
    spares, incoming = SpareStagings(), home / "incoming"
    one = store.stage(spares)
    inode, path = one.directory.stat().st_ino, one.files / "00000001"
    path.write_bytes(b"a copy")
    (one.files / "00").mkdir()
    one.discard()
    one.discard()  # done by who failed, and by who cleans up: it is not emptied under the next commit
    two = store.stage(spares)
    assert two.directory.stat().st_ino == inode and two.directory != one.directory
    assert not list(two.images.iterdir()) and not list(two.files.iterdir())
    (two.files / "00000002").write_bytes(b"in the making")
    one.discard()
    Store(home).close()  # sweeps what nobody holds
    assert (two.files / "00000002").exists()
    two.discard()
    Store(home).close()
    assert len(list(incoming.iterdir())) == 1  # held, though it is nobody's
    strange = store.stage(spares)
    (strange.directory / "memory").mkdir()
    strange.discard()
    assert not list(incoming.iterdir())
    kept = store.stage(spares)
    kept.discard()
    spares.close()
    assert not list(incoming.iterdir())
    store.stage(spares).discard()
    assert not list(incoming.iterdir())


def test_layers_laid_out_before_the_last_boot_are_not_trusted(store, home):
    """They are not synced, so a power failure may have left empty files in them."""
    one = commit(store)
    tree = store.files.lay_out_layer(store.manifest(one.id).layers[0])
    stale = home / "trees" / "00000000-another-boot"
    tree.parent.rename(stale)
    Store(home).close()
    assert not stale.exists()
    assert (store.files._layer_cache.get(store.manifest(one.id).layers[0])).is_dir()
