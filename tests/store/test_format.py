"""docs/format.md says all that is needed to read a store: a reader that knows only that page finds the same."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from relive.store import sweep
from relive.store.keyring import Keyring
from relive.store.pages import ingest
from relive.store.pages.packcheck import read_frames

from . import independent_reader
from .builders import commit, contents
from .series import Service, take


@pytest.mark.parametrize("sealed", [False, True], ids=["plain", "sealed"])
def test_the_independent_reader_finds_the_same(store, home, sealed, monkeypatch):
    """In a series with XORs and overlays, a key commit, and a pack that was repacked."""
    monkeypatch.setattr(ingest, "KEY_EVERY", 4)
    monkeypatch.setattr(sweep, "_REPACK_FROM", 1)
    keyring = Keyring(home.parent / "keys")
    key = keyring.make_store_key() if sealed else None
    service = Service(pages=40, records=6)
    states, parent = {}, None
    for _ in range(6):
        parent = take(store, service, parent).id
        states[parent] = service.images()
        service.live()
    odd = commit(store, pages=b"no whole page" * 1000).id
    states[odd] = contents(store, odd)[0]
    gone = list(states)[4]
    store.delete(gone)
    del states[gone]
    assert any(store._placements.read(one).base is not None for one in states)
    frames = [frame for path in (home / "packs").iterdir() for frame in read_frames(path, path.name)]
    assert any(frame.is_overlay for frame in frames)
    for commit_id, images in states.items():
        assert independent_reader.read_images(home, commit_id, keyring.public_key, key) == images


def test_the_independent_reader_is_independent():
    tree = ast.parse(Path(independent_reader.__file__).read_text())
    named = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    named |= {node.module or "." for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert not any(name.startswith((".", "relive")) for name in named)
