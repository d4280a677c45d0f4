"""Pulling: whom it trusts, what it opens, and how it goes on after a break."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
from contextlib import contextmanager

import pytest

from relive.errors import (
    DiskFull,
    KeyMissing,
    KeyWrong,
    ObjectCorrupt,
    SignatureInvalid,
    StoreBusy,
    UsageError,
)
from relive.remotes.pull import pieces_to_fetch, pull
from relive.remotes.remote_layout import PIECE_SIZE, pieces_of
from relive.store import Store
from relive.store.keyring import Keyring
from relive.store.transfer_parts import PartKind, TransferPart
from store.builders import OLD, commit, contents
from store.test_crashes import Ledger

from .conftest import HERE, Host
from .test_push import fetch, flip, noise, send


@pytest.fixture
def stranger(tmp_path):
    """A host that trusts nobody but itself."""
    host = Host(tmp_path / "stranger")
    yield host
    host.store.close()


def arrived(host: Host) -> list[str]:
    return sorted(path.name for path in (host.home / "store" / "arriving").glob("*-*"))


def test_a_commit_of_a_stranger_is_refused_before_it_travels_with_the_way_to_trust_it(
    sender, stranger, directory_remote
):
    one = commit(sender.store)
    send(sender, directory_remote, one.id)
    with pytest.raises(SignatureInvalid, match="not trusted") as caught:
        fetch(stranger, directory_remote, one.id, force=True)
    assert str(caught.value.cause).endswith(sender.keyring.public_key.hex())
    assert "relive key trust" in str(caught.value.remedy)
    assert arrived(stranger) == []
    stranger.trust(sender)
    assert fetch(stranger, directory_remote, one.id).is_new


def test_a_sealed_commit_is_refused_before_it_travels_where_there_is_no_key(
    sender, receiver, directory_remote
):
    key = sender.keyring.make_store_key()
    one = commit(sender.store)
    send(sender, directory_remote, one.id)
    with pytest.raises(KeyMissing):
        fetch(receiver, directory_remote, one.id)
    assert arrived(receiver) == []
    (receiver.home / "keys" / "store.key").write_bytes(key)
    fetch(receiver, directory_remote, one.id)
    assert contents(receiver.store, one.id) == contents(sender.store, one.id)


@pytest.mark.parametrize("size", [5000, 5 << 20], ids=["in one piece", "over a border"])
def test_a_commit_that_is_sealed_with_another_key_is_refused_before_it_travels(
    sender, receiver, directory_remote, size
):
    key = sender.keyring.make_store_key()
    own = receiver.keyring.make_store_key()
    one = commit(sender.store, pages=noise(size))
    send(sender, directory_remote, one.id)
    with pytest.raises(KeyWrong):
        fetch(receiver, directory_remote, one.id)
    assert arrived(receiver) == []
    assert receiver.store.log() == []
    # With both of them it is opened, and what is written here is sealed with the own one still.
    receiver.keyring.rotate_store_key(key)
    receiver.keyring.rotate_store_key(own)
    fetch(receiver, directory_remote, one.id)
    assert contents(receiver.store, one.id) == contents(sender.store, one.id)


def test_a_commit_of_format_1_is_not_exchanged(tmp_path, directory_remote):
    """It is not signed, so nobody could tell whose it is."""
    from store.test_version1 import FILES as OLD_STORE  # a store that an older Relive has written

    shutil.copytree(OLD_STORE, tmp_path / "old" / "store")
    store = Store(tmp_path / "old" / "store", Keyring(tmp_path / "old" / "keys"))
    host = object.__new__(Host)
    host.store = store
    with pytest.raises(UsageError, match="format 1"):
        send(host, directory_remote, store.log()[0].id)


def test_two_pulls_into_one_store_do_not_mix(sender, receiver, directory_remote):
    one = commit(sender.store)
    send(sender, directory_remote, one.id)
    lock = receiver.home / "store" / "arriving" / "lock"
    lock.parent.mkdir()
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(StoreBusy):
            fetch(receiver, directory_remote, one.id)
    assert fetch(receiver, directory_remote, one.id).is_new


# -- going on after a break ---------------------------------------------------------------------------------------------


@pytest.fixture
def large(sender, directory_remote):
    """A commit whose pack has three pieces, at the remote."""
    one = commit(sender.store, pages=noise(2 * PIECE_SIZE + 8192))
    send(sender, directory_remote, one.id)
    return one


def break_off(host: Host, remote, commit_id, keep: int) -> TransferPart:
    """Let a pull end when ``keep`` bytes of the pack have arrived."""
    commit = host.store.transfers.open(
        commit_id,
        *(remote.read(path) for path in paths(commit_id)[:1]),
        lambda: remote.read(paths(commit_id)[1]),
    )
    (pack,) = [part for part in commit.parts if part.kind is PartKind.PACK]
    with host.store.transfers.receiving():
        data = b"".join(remote.read(piece.path) for piece in pieces_of(pack, keep))
        host.store.transfers.arriving(pack).write_bytes(data[:keep])
    return pack


def paths(commit_id):
    from relive.remotes.remote_layout import manifest_path, placement_path

    return manifest_path(commit_id), placement_path(commit_id)


def test_a_pull_goes_on_behind_the_last_whole_piece(receiver, directory_remote, large):
    whole = large.new_bytes
    break_off(receiver, directory_remote, large.id, PIECE_SIZE + 5)
    pulled = fetch(receiver, directory_remote, large.id)
    assert whole - PIECE_SIZE - 4096 < pulled.bytes < whole - PIECE_SIZE + 4096
    assert receiver.store.transfers.whole(large.id)
    assert arrived(receiver) == []


def test_what_rotted_here_since_the_break_is_fetched_anew(receiver, directory_remote, large):
    pack = break_off(receiver, directory_remote, large.id, PIECE_SIZE)
    flip(receiver.store.transfers.arriving(pack), 1000)
    pulled = fetch(receiver, directory_remote, large.id)
    assert pulled.bytes > large.new_bytes
    assert receiver.store.transfers.whole(large.id)


def test_a_part_that_had_arrived_whole_and_rotted_is_not_taken_in(receiver, directory_remote, large):
    size = sum(directory_remote.sizes(pack_directory(directory_remote)).values())
    pack = break_off(receiver, directory_remote, large.id, size)
    flip(receiver.store.transfers.arriving(pack), 1000)
    with pytest.raises(ObjectCorrupt):
        fetch(receiver, directory_remote, large.id)
    assert receiver.store.log() == []
    assert fetch(receiver, directory_remote, large.id).is_new


def pack_directory(remote) -> str:
    found = [name for name in remote.sizes("packs") if name.endswith("000002")]
    return "packs/" + found[0].rsplit("/", 1)[0]


def test_what_is_dropped_here_while_the_rest_travels_is_fetched_too(sender, receiver, directory_remote):
    """GIVEN a commit of the series here WHEN it goes while the next one is pulled THEN what they share comes as well."""
    old = commit(sender.store, pages=noise(1 << 20))
    new = commit(sender.store, pages=noise(1 << 20), parents=[old.id], capture="2", files={"new": b"new"})
    send(sender, directory_remote, old.id)
    send(sender, directory_remote, new.id)
    fetch(receiver, directory_remote, old.id)
    asked = []

    @contextmanager
    def drop(what, total):
        asked.append(total)
        if len(asked) == 1:
            other = Store(receiver.home / "store")
            other.delete(old.id)
            other.close()
        yield lambda _done: None

    pulled = pull(receiver.store, directory_remote, new.id, HERE, force=False, show=drop)
    assert len(asked) == 2
    assert (sum(asked), asked[1] > 1 << 20) == (pulled.bytes, True)
    assert contents(receiver.store, new.id) == contents(sender.store, new.id)


def test_a_commit_that_lost_a_part_here_is_made_whole(sender, receiver, directory_remote):
    one = commit(sender.store, version=OLD)
    send(sender, directory_remote, one.id)
    fetch(receiver, directory_remote, one.id)
    next((receiver.home / "store" / "objects").glob("*/*")).unlink()
    assert fetch(receiver, directory_remote, one.id).parts == 1
    assert contents(receiver.store, one.id) == contents(sender.store, one.id)


def test_what_is_received_was_synced_before_it_got_its_name_and_its_name_after(
    sender, receiver, directory_remote, monkeypatch
):
    one = commit(sender.store, files={"a": b"1", "b": b"2"}, version=OLD)
    send(sender, directory_remote, one.id)
    ledger = Ledger(monkeypatch)
    fetch(receiver, directory_remote, one.id)
    assert len(ledger.moved) >= 5  # two objects, a pack, the placement, the manifest
    assert [path for path, synced in ledger.moved if not synced] == []
    assert ledger.unsynced_directories == set()
    kinds = [path.relative_to(receiver.home / "store").parts[0] for path, _ in ledger.moved]
    assert kinds[-2:] == ["placements", "manifests"]


def test_a_full_disk_is_told_and_what_had_arrived_counts_the_next_time(receiver, directory_remote, large):
    pwrite, written = os.pwrite, []

    def full(file: int, data: bytes, at: int) -> int:
        if len(written) == 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        written.append(at)
        return pwrite(file, data, at)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        with pytest.raises(DiskFull):
            fetch(receiver, directory_remote, large.id)
    assert receiver.store.log() == []
    assert fetch(receiver, directory_remote, large.id).bytes < large.new_bytes


PACK, OBJECT = TransferPart(PartKind.PACK, "a" * 64), TransferPart(PartKind.OBJECT, "b" * 64)


@pytest.mark.parametrize(
    ("gathered", "numbers"),
    [
        (None, [0, 1, 2]),
        (0, [0, 1, 2]),
        (PIECE_SIZE - 1, [0, 1, 2]),
        (PIECE_SIZE, [1, 2]),
        (2 * PIECE_SIZE + 9, [2]),
        (2 * PIECE_SIZE + 10, []),
        (2 * PIECE_SIZE + 11, [0, 1, 2]),
    ],
)
def test_pieces_are_fetched_that_have_not_arrived_whole(gathered, numbers):
    pieces = pieces_to_fetch({PACK: 2 * PIECE_SIZE + 10}, {PACK: gathered})
    assert [piece.number for piece in pieces] == numbers


def test_an_empty_object_is_fetched_once():
    assert [piece.size for piece in pieces_to_fetch({OBJECT: 0}, {OBJECT: None})] == [0]
    assert pieces_to_fetch({OBJECT: 0}, {OBJECT: 0}) == []
