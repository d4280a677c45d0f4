"""A store of format 6, with dictionaries of one pack each, is read as it is, goes on, and its pages may be moved."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from relive.maintenance.verify import verify
from relive.store import Store, sweep
from relive.store.pages import dictionary_policy, ingest, repack
from relive.store.pages.packcheck import read_frames
from relive.store.pages.packfile import FrameKind

from . import independent_reader
from .builders import contents
from .series import Service, take

FILES = Path(__file__).parent / "files" / "version6"


@pytest.fixture
def old(tmp_path: Path) -> Store:
    """Four commits of ``Service(pages=21, records=5, moved=5)``, written by the Relive of then."""
    home = tmp_path / "store"
    shutil.copytree(FILES, home, ignore=shutil.ignore_patterns("signer.pub"))
    trusted = tmp_path / "keys" / "trusted"
    trusted.mkdir(parents=True)
    shutil.copy(FILES / "signer.pub", trusted / "then.pub")
    return Store(home)


def series() -> Service:
    return Service(pages=21, records=5, moved=5)


def test_it_comes_back_and_a_new_commit_follows(old, monkeypatch):
    monkeypatch.setattr(sweep, "_REPACK_FROM", 1)
    monkeypatch.setattr(repack, "_LIVE_LEAST", 1)
    monkeypatch.setattr(ingest, "KEY_EVERY", 6)
    monkeypatch.setattr(dictionary_policy, "_LEAST", 1)
    packs = old.internals.packs
    kinds = {frame.kind for name in packs.names() for frame in read_frames(packs.path(name), name)}
    assert kinds >= {
        what | how
        for what in (FrameKind.PAGES, FrameKind.WORDS)
        for how in (FrameKind.DELTA, FrameKind.DICTIONARY)
    }
    assert verify(old, data=True).problems == []
    service, parent = series(), None
    signer = bytes.fromhex((FILES / "signer.pub").read_text())
    commits = [line.id for line in old.log()][::-1]
    for commit_id in commits:
        assert contents(old, commit_id)[0] == service.images()
        assert independent_reader.read_images(old.internals.directory, commit_id, signer) == service.images()
        parent = commit_id
        service.live()
    assert (old.internals.directory / "format").read_text() == '{"version": 6}'
    states = {}
    for _ in range(6):
        parent = take(old, service, parent).id
        states[parent] = service.images()
        service.live()
    assert (old.internals.directory / "format").read_text() == '{"version": 7}'
    old.delete(commits[2])
    old.delete(commits[1])
    assert verify(old, data=True).problems == []
    for commit_id, images in states.items():
        assert contents(old, commit_id)[0] == images
    old.close()
