"""A store on a disk that takes no writes: all that only reads works, all else is refused, and nothing waits or is left."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from relive.errors import HostIncapable
from relive.maintenance.verify import verify
from relive.model.commit import CommitId
from relive.store import Store

from .builders import commit


@contextlib.contextmanager
def read_only(directory: Path) -> Iterator[None]:
    subprocess.run(["mount", "--bind", directory, directory], check=True)
    try:
        subprocess.run(["mount", "-o", "remount,bind,ro", directory], check=True)
        yield
    finally:
        subprocess.run(["umount", directory], check=True)


def held_by(store: Store, commit_id: CommitId) -> tuple[dict[str, bytes], list[bytes]]:
    """Small images and files of a commit, read as who looks into it does."""
    manifest = store.manifest(commit_id)
    with store.images.open_memory(manifest) as memory:
        images = dict(memory.small)
    return images, [
        store.files.content(entry) for layer in manifest.layers for entry in layer.entries if entry.object
    ]


def test_what_is_on_a_read_only_disk_is_listed_and_read(store: Store, home: Path) -> None:
    one, two = commit(store, capture="1"), commit(store, capture="2", pages=b"other")
    store.tag("good", one.id)
    held, lines = held_by(store, one.id), store.log()
    store.close()
    (boot,) = (home / "trees").iterdir()
    shutil.rmtree(boot)  # as after a boot
    before = sorted(home.rglob("*"))
    with read_only(home):
        reader = Store(home)
        assert reader.log() == lines
        assert reader.resolve("good") == one.id
        assert held_by(reader, one.id) == held
        assert verify(reader, data=True).problems == []
        for write in (
            lambda: reader.tag("bad", one.id),
            lambda: reader.untag("good"),
            lambda: reader.delete(two.id),
            lambda: commit(reader, capture="3"),
        ):
            with pytest.raises(HostIncapable, match="takes no writes"):
                write()
        assert reader.log() == lines
        reader.close()
    assert sorted(home.rglob("*")) == before
