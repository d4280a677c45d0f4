"""docs/format.md says all that is needed to read a store: a reader that knows only that page finds the same."""

from __future__ import annotations

import ast
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from relive.store import sweep
from relive.store.keyring import Keyring
from relive.store.pages import ingest
from relive.store.pages.packcheck import read_frames
from relive.store.pages.packfile import FrameKind

from . import independent_reader
from .builders import commit, contents
from .series import Service, take


@pytest.mark.parametrize("sealed", [False, True], ids=["plain", "sealed"])
def test_the_independent_reader_finds_the_same(store, home, sealed, monkeypatch):
    """In a series with changed words, a key commit, and a pack that was repacked."""
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
    assert any(store.internals.placements.read(one).bases for one in states)
    frames = [frame for path in (home / "packs").iterdir() for frame in read_frames(path, path.name)]
    assert any(frame.kind & FrameKind.WORDS for frame in frames)
    for commit_id, images in states.items():
        assert independent_reader.read_images(home, commit_id, keyring.public_key, key) == images


@pytest.mark.parametrize("sealed", [False, True], ids=["plain", "sealed"])
def test_the_independent_reader_finds_what_is_compressed_against_dictionaries(
    store, home, sealed, monkeypatch
):
    """Of full pages and of changed words; through a key commit, and a pack with a dictionary that was repacked."""
    monkeypatch.setattr(ingest, "KEY_EVERY", 5)
    monkeypatch.setattr(sweep, "_REPACK_FROM", 1)
    keyring = Keyring(home.parent / "keys")
    key = keyring.make_store_key() if sealed else None
    service = Service(pages=100, records=60, moved=40)
    states, parent = {}, None
    for _ in range(7):
        parent = take(store, service, parent).id
        states[parent] = service.images()
        service.live()
    frames = [frame for path in (home / "packs").iterdir() for frame in read_frames(path, path.name)]
    for what in (FrameKind.PAGES, FrameKind.WORDS):
        assert {what | FrameKind.DELTA, what | FrameKind.DICTIONARY} <= {frame.kind for frame in frames}
    for gone in list(states)[1:4]:
        store.delete(gone)
        del states[gone]
    for commit_id, images in states.items():
        assert independent_reader.read_images(home, commit_id, keyring.public_key, key) == images


@pytest.mark.parametrize("sealed", [False, True], ids=["plain", "sealed"])
def test_the_independent_reader_finds_the_same_files(store, home, sealed, monkeypatch):
    """Of files that change page by page, grow, shrink, come and go; through key commits and repacking."""
    monkeypatch.setattr(ingest, "KEY_EVERY", 4)
    monkeypatch.setattr(sweep, "_REPACK_FROM", 1)
    keyring = Keyring(home.parent / "keys")
    key = keyring.make_store_key() if sealed else None
    states, parent = {}, None
    for files in lives(7):
        parent = commit(store, capture=f"{len(states)}", files=files, parents=[parent] if parent else []).id
        states[parent] = files
    gone = list(states)[5]
    store.delete(gone)
    del states[gone]
    frames = [frame for path in (home / "packs").iterdir() for frame in read_frames(path, path.name)]
    assert any(frame.kind & FrameKind.WORDS for frame in frames)
    for commit_id, files in states.items():
        assert independent_reader.read_files(home, commit_id, keyring.public_key, key) == files
    marks = [files["small"] for files in states.values()] + [b"settings"]
    kept = b"".join(path.read_bytes() for path in home.rglob("*") if path.is_file())
    assert not sealed or not any(mark in kept for mark in marks)


def lives(count: int) -> Iterator[dict[str, bytes]]:
    """The files of a service at each of its commits."""
    chance = random.Random(7)
    large, text = bytearray(chance.randbytes(300_000)), b""
    for number in range(count):
        large[4096 * 20 + number] ^= 1  # one word
        large[4096 * 40 : 4096 * 40 + 1500] = chance.randbytes(1500)  # many
        text += b"%d: a line of the log\n" % number * 50
        yield {
            "large": bytes(large),
            "log": text,
            "shrinks": bytes(large[: 90_000 - 20_000 * (number % 4)]),
            "settings": b"[service]\nport = 1\n",
            "small": b"the secret of number %d" % number,
            "empty": b"",
            "holes": bytes(50_000) + b"%d" % number,
            f"of/{number}": chance.randbytes(5000),
        }


def test_the_independent_reader_is_independent():
    tree = ast.parse(Path(independent_reader.__file__).read_text())
    named = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    named |= {node.module or "." for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert not any(name.startswith((".", "relive")) for name in named)
