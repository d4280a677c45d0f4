"""Keys: made on first use, for their owner's eyes; a store that is sealed is never written plain, nor with another key."""

from __future__ import annotations

import contextlib
import json
import os
from concurrent.futures import ThreadPoolExecutor

import pytest

from relive.errors import KeyMissing, KeyWrong, SignatureInvalid
from relive.store import Store
from relive.store.keyring import Keyring, Signature

from .builders import commit, contents, is_whole


@pytest.fixture
def keys(tmp_path):
    return tmp_path / "keys"


def test_the_signing_key_is_made_on_first_use_and_only_its_owner_can_read_it(keys):
    assert not keys.exists()
    one = Keyring(keys).public_key
    assert (keys / "signing.key").stat().st_mode & 0o777 == 0o600
    assert keys.stat().st_mode & 0o777 == 0o700
    assert Keyring(keys).public_key == one
    assert [path.name for path in keys.iterdir()] == ["signing.key"]


def test_many_that_need_the_key_at_once_get_the_same(keys):
    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(lambda _: Keyring(keys).public_key, range(8)))) == 1


def test_what_is_signed_is_accepted_and_what_was_changed_is_not(keys):
    ring = Keyring(keys)
    signed = ring.sign(b"data")
    Keyring(keys).verify("it", signed, b"data")
    for signature, data in (
        (signed, b"Data"),
        (Signature(signed.signer, bytes(64)), b"data"),
        (Signature(signed.signer, b""), b"data"),
        (Signature(bytes(32), signed.signature), b"data"),
        (Signature(None, None), b"data"),  # type: ignore[arg-type]
    ):
        with pytest.raises(SignatureInvalid, match="it"):
            ring.verify("it", signature, data)


@pytest.mark.parametrize("name", ["signing.key", "store.key"])
@pytest.mark.parametrize("data", [b"", b"x" * 31, b"x" * 33])
def test_a_file_that_holds_no_key_is_named(keys, name, data):
    keys.mkdir()
    (keys / name).write_bytes(data)
    with pytest.raises(KeyWrong, match=name):
        Keyring(keys).make_store_key() if name == "store.key" else Keyring(keys).sign(b"")


def test_commits_of_another_host_need_its_public_key(store, home, keys, tmp_path):
    """GIVEN a store that was copied here without its keys."""
    one = commit(store)
    signer = Keyring(keys).public_key.hex()
    keys.rename(tmp_path / "elsewhere")
    here = Store(home)
    with pytest.raises(SignatureInvalid) as caught:
        contents(here, one.id)
    assert signer in (caught.value.cause or "")
    (keys / "trusted").mkdir(parents=True)
    (keys / "trusted" / "junk.pub").write_text("no key")
    (keys / "trusted" / "host.pub").write_text(signer + "\n")
    assert is_whole(here, one.id)
    other = commit(here, capture="2", parents=[one.id])
    assert is_whole(here, other.id)
    here.close()


def test_a_store_is_sealed_from_the_moment_there_is_a_key_and_says_which(store, home, keys):
    plain = commit(store, capture="1", pages=b"secret" * 1000)
    key = Keyring(keys).make_store_key()
    sealed = commit(store, capture="2", pages=b"secret" * 1001, parents=[plain.id])
    assert (keys / "store.key").stat().st_mode & 0o777 == 0o600
    noted = json.loads((home / "format").read_text())["key"]
    assert len(noted) == 32
    assert noted not in key.hex()
    assert is_whole(store, plain.id)
    assert is_whole(store, sealed.id)


def test_a_sealed_store_is_never_written_plain_nor_with_another_key(store, home, keys):
    Keyring(keys).make_store_key()
    one = commit(store)
    before = sorted(path for path in home.rglob("*") if path.is_file())
    (keys / "store.key").rename(keys / "away")
    with pytest.raises(KeyMissing):
        commit(store, capture="2")
    with pytest.raises(KeyMissing):
        contents(store, one.id)
    (keys / "store.key").write_bytes(os.urandom(32))
    with pytest.raises(KeyWrong):
        commit(store, capture="2")
    with pytest.raises(KeyWrong):
        contents(store, one.id)
    assert sorted(path for path in home.rglob("*") if path.is_file()) == before
    (keys / "away").rename(keys / "store.key")
    assert is_whole(store, commit(store, capture="2", parents=[one.id]).id)


@pytest.mark.parametrize("number", range(1, 30))
def test_a_crash_while_the_key_is_changed_leaves_one_that_opens_all(store, home, keys, monkeypatch, number):
    """GIVEN sealed commits, WHEN the change stops at any step, THEN all are read and more can be taken in."""
    Keyring(keys).make_store_key()
    one = commit(store, capture="1", pages=b"secret" * 1000).id
    steps = 0

    def stopping(function):
        def wrapped(*arguments, **options):
            nonlocal steps
            steps += 1
            if steps == number:
                raise KeyboardInterrupt
            return function(*arguments, **options)

        return wrapped

    with monkeypatch.context() as patch:
        for name in ("open", "write", "fsync", "replace", "unlink", "mkdir"):
            patch.setattr(os, name, stopping(getattr(os, name)))
        with contextlib.suppress(KeyboardInterrupt):
            Keyring(keys).rotate_store_key()
    assert is_whole(store, one)
    assert is_whole(store, commit(store, capture="2", pages=b"other" * 1000).id)
    again = Keyring(keys).rotate_store_key()
    assert Keyring(keys).store_key() == again
    assert is_whole(store, one)
