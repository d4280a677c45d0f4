"""Pushing and pulling, over a directory and over a real S3 server: what arrives is the same, and only what lacks travels."""

from __future__ import annotations

import os
import random
from contextlib import contextmanager
from pathlib import Path

import pytest

from relive.errors import ObjectCorrupt, ObjectMissing, RefUnknown, UsageError
from relive.model.commit import MANIFEST_VERSION
from relive.remotes.pull import Pulled, pull
from relive.remotes.push import Pushed, missing_pieces, push
from relive.remotes.references import resolve_remote_reference
from relive.remotes.remote_layout import PIECE_SIZE, manifest_path, part_directory, placement_path
from relive.store import Store
from relive.store.transfer_parts import PartKind, TransferPart
from store.builders import OLD, commit, contents

from .conftest import HERE, silent

FILES = {"etc/pay.conf": b"limit=5\n", "empty": b"", "twice": b"limit=5\n"}


def send(host, remote, commit_id, *, tag=None, force=False) -> Pushed:
    return push(host.store, remote, commit_id, tag=tag, force=force, show=silent)


def fetch(host, remote, commit_id, *, force=False, here=HERE) -> Pulled:
    return pull(host.store, remote, commit_id, here, force=force, show=silent)


def noise(size: int, seed: int = 1) -> bytes:
    """Bytes that do not compress."""
    return random.Random(seed).randbytes(size)


@pytest.mark.parametrize(("version", "parts"), [(OLD, 3), (MANIFEST_VERSION, 1)], ids=["objects", "packs"])
def test_a_commit_arrives_bit_for_bit(sender, receiver, remote, version, parts):
    one = commit(sender.store, files=FILES, version=version, pages=noise(PIECE_SIZE * 2 + 4096))
    pushed = send(sender, remote, one.id)
    assert (pushed.parts, pushed.held, pushed.is_new) == (parts, 0, True)
    pulled = fetch(receiver, remote, one.id)
    assert (pulled.parts, pulled.bytes, pulled.held, pulled.is_new) == (parts, pushed.bytes, 0, True)
    assert contents(receiver.store, one.id) == contents(sender.store, one.id)
    assert receiver.store.get(one.id).new_bytes == pushed.bytes


def test_what_is_there_does_not_travel_again(sender, receiver, remote):
    one = commit(sender.store, files=FILES, version=OLD)
    send(sender, remote, one.id)
    assert send(sender, remote, one.id) == Pushed(one.id, 0, 0, 3, False)
    fetch(receiver, remote, one.id)
    assert fetch(receiver, remote, one.id) == Pulled(one.id, 0, 0, 3, False)


def test_the_next_commit_of_a_series_brings_only_what_is_new_and_needs_no_ancestor(sender, receiver, remote):
    old = commit(sender.store, files=FILES, version=OLD, pages=noise(1 << 20))
    changed = bytearray(noise(1 << 20))
    changed[5000] ^= 1
    new = commit(sender.store, files=FILES, version=OLD, pages=bytes(changed), parents=[old.id], capture="2")
    first = send(sender, remote, old.id)
    second = send(sender, remote, new.id)
    assert (second.parts, second.held) == (1, 3)
    assert second.bytes < first.bytes // 100
    fetch(receiver, remote, new.id)
    assert [line.id for line in receiver.store.log()] == [new.id]
    assert contents(receiver.store, new.id) == contents(sender.store, new.id)


def test_a_commit_that_was_pulled_can_be_pushed_on_with_its_first_signature(sender, receiver, remote):
    one = commit(sender.store)
    send(sender, remote, one.id)
    fetch(receiver, remote, one.id)
    assert not send(receiver, remote, one.id).is_new
    placements = [host.home / "store" / "placements" / one.id for host in (sender, receiver)]
    assert placements[0].read_bytes() == placements[1].read_bytes()


def test_a_manifest_appears_after_all_that_it_names(sender, directory_remote, monkeypatch):
    """Else who finds it could not fetch it."""
    written = []
    write, write_new = directory_remote.write, directory_remote.write_new
    monkeypatch.setattr(
        directory_remote, "write", lambda path, data: (written.append(path), write(path, data))
    )
    monkeypatch.setattr(
        directory_remote, "write_new", lambda path, data: (written.append(path), write_new(path, data))[1]
    )
    one = commit(sender.store, files=FILES, version=OLD)
    send(sender, directory_remote, one.id, tag="t")
    kinds = [path.split("/")[0] for path in written]
    assert kinds[0] == "format"
    assert sorted(kinds[1:4]) == ["objects", "objects", "packs"]  # several at once
    assert kinds[4:] == ["placements", "manifests", "tags"]


def test_what_was_removed_at_the_remote_is_sent_again(sender, receiver, directory_remote, tmp_path):
    one = commit(sender.store, files=FILES, version=OLD)
    send(sender, directory_remote, one.id)
    next((tmp_path / "remote" / "objects").glob("*/*/*")).unlink()
    with pytest.raises(ObjectMissing, match=r"object .* is not at file://"):
        fetch(receiver, directory_remote, one.id)
    assert send(sender, directory_remote, one.id).parts == 1
    fetch(receiver, directory_remote, one.id)


def test_what_is_damaged_here_is_not_spread(sender, directory_remote, tmp_path):
    one = commit(sender.store, files=FILES, version=OLD)
    flip(next((sender.home / "store" / "objects").glob("*/*")))
    with pytest.raises(ObjectCorrupt):
        send(sender, directory_remote, one.id)
    assert not list((tmp_path / "remote").glob("manifests/*/*"))


def flip(path, at: int = -1) -> None:
    """Change one bit of a file."""
    data = bytearray(path.read_bytes() or b"\0")
    data[at] ^= 1
    path.chmod(0o600)
    path.write_bytes(data)


@pytest.mark.parametrize("kind", ["manifest", "placement", "pack", "object"])
def test_a_bit_that_was_flipped_at_the_remote_is_refused_by_name_and_nothing_is_taken_in(
    kind, sender, receiver, remote
):
    one = commit(sender.store, version=OLD)
    send(sender, remote, one.id)
    with sender.store.transfers.hold(one.id) as held:
        paths = {part.kind.removesuffix("s"): f"{part_directory(part)}/000000" for part in held.commit.parts}
    path = (paths | {"manifest": manifest_path(one.id), "placement": placement_path(one.id)})[kind]
    data = bytearray(remote.read(path))
    data[5] ^= 1
    remote.write(path, bytes(data))
    with pytest.raises(ObjectCorrupt, match=f"{kind} .*damaged"):
        fetch(receiver, remote, one.id)
    assert receiver.store.log() == []
    assert not list((receiver.home / "store" / "manifests").iterdir())


def test_a_tag_is_pushed_found_and_moved_only_by_force(sender, remote):
    old, new = commit(sender.store, capture="1"), commit(sender.store, capture="2")
    send(sender, remote, old.id, tag="für %2F/../x")
    assert resolve_remote_reference(remote, "für %2F/../x").commit == old.id
    send(sender, remote, old.id, tag="für %2F/../x")
    with pytest.raises(UsageError, match="exists at"):
        send(sender, remote, new.id, tag="für %2F/../x")
    send(sender, remote, new.id, tag="für %2F/../x", force=True)
    assert resolve_remote_reference(remote, "für %2F/../x").commit == new.id


def test_a_tag_that_is_taken_is_told_before_anything_is_sent(sender, remote):
    old, new = commit(sender.store, capture="1"), commit(sender.store, capture="2")
    send(sender, remote, old.id, tag="t")
    with pytest.raises(UsageError):
        send(sender, remote, new.id, tag="t")
    assert remote.read(manifest_path(new.id)) is None


def test_an_id_may_be_cut_short(sender, receiver, remote):
    one = commit(sender.store)
    send(sender, remote, one.id)
    assert resolve_remote_reference(remote, one.id[:7]).commit == one.id
    with pytest.raises(RefUnknown):
        resolve_remote_reference(remote, "0000" if not one.id.startswith("0000") else "1111")
    with pytest.raises(RefUnknown):
        fetch(receiver, remote, "f" * 64)


def test_a_commit_that_is_dropped_while_it_is_sent_arrives_all_the_same(sender, receiver, directory_remote):
    """The agent of a busy service drops old commits every few seconds, and does not wait for a push."""
    one = commit(sender.store, pages=noise(3 * PIECE_SIZE))
    expected = contents(sender.store, one.id)

    @contextmanager
    def drop(_what, _total):
        other = Store(sender.home / "store")
        other.delete(one.id)
        other.close()
        yield lambda _done: None

    push(sender.store, directory_remote, one.id, tag=None, force=False, show=drop)
    assert not list((sender.home / "store" / "packs").iterdir())
    fetch(receiver, directory_remote, one.id)
    assert contents(receiver.store, one.id) == expected


def test_what_a_directory_remote_is_given_is_durable_before_its_manifest_is(
    sender, directory_remote, tmp_path
):
    """A power failure must not leave a manifest whose parts are gone."""
    one = commit(sender.store)
    synced: list[str] = []
    fsync = os.fsync

    def noted(descriptor: int) -> None:
        fsync(descriptor)
        synced.append(os.readlink(f"/proc/self/fd/{descriptor}").removeprefix(f"{tmp_path}/remote/"))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", noted)
        send(sender, directory_remote, one.id)
    written = [
        str(path.relative_to(tmp_path / "remote"))
        for path in (tmp_path / "remote").rglob("*")
        if path.is_file()
    ]
    assert sorted(name for name in synced if name in written) == sorted(written)
    before = synced[: synced.index(manifest_path(one.id))]
    others = {name for name in written if not name.startswith("manifests")}
    assert others | {str(Path(name).parent) for name in others if "/" in name} <= set(before)


# -- what lacks, decided ------------------------------------------------------------------------------------------------

PACK = TransferPart(PartKind.PACK, "a" * 64)


@pytest.mark.parametrize(
    ("there", "numbers"),
    [
        ({}, [0, 1, 2]),
        ({"000000": PIECE_SIZE}, [1, 2]),
        ({"000000": PIECE_SIZE, "000001": PIECE_SIZE, "000002": 10}, []),
        ({"000000": PIECE_SIZE - 1, "000001": PIECE_SIZE, "000002": 11}, [0, 2]),
        ({"000000": PIECE_SIZE, "000001": PIECE_SIZE, "000002": 10, "000003": 5}, []),
    ],
)
def test_pieces_are_missing_that_are_not_there_in_full_size(there, numbers):
    pieces = missing_pieces({PACK: PIECE_SIZE * 2 + 10}, {PACK: there})
    assert [piece.number for piece in pieces] == numbers
