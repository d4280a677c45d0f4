"""Placements: for each commit a small signed file that says in which packs its index and its pages lie.

A commit's id covers what it is (the hash of every image), never where it lies: so equal states have equal ids though packs
have random ids, and its pages may be moved to other packs by replacing the placement. A placement names its commit, and
packs by hashes of their headers, so that its signature covers the manifest and every byte that is read for it.
Bytes are specified in docs/format.md.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgpack
from blake3 import blake3

from relive.errors import ObjectCorrupt, ObjectMissing
from relive.kernel.atomic_write import sync_directory
from relive.model.commit import CommitId
from relive.store.atomic_io import (
    FreshFile,
    delete_file,
    discarding,
    make_whole,
    publish_in_order,
    write_whole,
)
from relive.store.keyring import Keyring, Signature

__all__ = ["FramePlace", "Placement", "Placements", "decode_placement"]

_VERSION = 3
_CONTEXT = b"relive placement 2\0"
_BASES_MOST = 8  # each is decompressed whenever the commit is read


@dataclass(frozen=True, slots=True)
class FramePlace:
    """A frame: position of its pack in the placement's list, and its number in the pack."""

    pack: int
    frame: int


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a commit lies.

    Attributes:
        packs: names; None where a pack is not needed any more, so that the positions of the others stay.
        index: the frame that holds its index.
        bases: the frames that it needs, the first of which stands alone; the bytes of each are the dictionary for the next, those
            of the last for the index itself. Empty if that stands alone (a key commit).
        since_key: commits since the last key commit; 0 for one.
    """

    commit: CommitId
    packs: Sequence[str | None]
    index: FramePlace
    bases: Sequence[FramePlace]
    since_key: int

    def needed(self) -> set[str]:
        """The packs without which it cannot be given back."""
        return {name for name in self.packs if name is not None}


class Placements:
    """The directory of placements, named by commit."""

    def __init__(self, directory: Path, incoming: Path, keyring: Keyring) -> None:
        self._directory = directory
        self._incoming = incoming
        self._keyring = keyring
        directory.mkdir(exist_ok=True)

    def write(self, placement: Placement) -> None:
        """Put it there, replacing one of the same commit, durable on return."""
        with discarding(self.make(placement)) as made:
            publish_in_order([[made]])

    def make(self, placement: Placement) -> tuple[FreshFile, Path]:
        """Its file, complete and not yet at its place, and that; to be discarded where it does not get there."""
        body = _encode(placement)
        signed = self._keyring.sign(_CONTEXT + body)
        data: bytes = msgpack.packb([body, blake3(body).digest(), signed.signer, signed.signature])
        return make_whole(self._incoming, data, self._directory / placement.commit)

    def read(self, commit_id: CommitId) -> Placement:
        """The placement of a commit.

        Raises:
            ObjectMissing: there is none.
            ObjectCorrupt: its bytes have changed, or it is of another commit.
            SignatureInvalid: it is not signed, or by nobody who is trusted.
        """
        return self.check(commit_id, self.raw(commit_id))

    def raw(self, commit_id: CommitId) -> bytes:
        """The file's bytes, whoever signed them; raises ObjectMissing."""
        try:
            return (self._directory / commit_id).read_bytes()
        except FileNotFoundError:
            raise ObjectMissing(
                f"the placement of {commit_id[:10]} is not in the store",
                cause="it was deleted or never arrived",
            ) from None

    def check(self, commit_id: CommitId, data: bytes) -> Placement:
        """Read bytes that are to become the placement of a commit; raises as ``read``, but for ObjectMissing."""
        body, signature = _open(commit_id, data)
        self._keyring.verify(f"the placement of {commit_id[:10]}", signature, _CONTEXT + body)
        return _decode(commit_id, body)

    def install(self, commit_id: CommitId, data: bytes) -> None:
        """Put checked bytes there, with the signature they have; durable on return."""
        write_whole(self._incoming, self._directory / commit_id, data)

    def sign_anew(self, commit_id: CommitId, signers: Collection[bytes]) -> bool:
        """Sign with this host's key what one of these has signed, durable on return; returns whether that was so.

        Raises:
            ObjectMissing, ObjectCorrupt, SignatureInvalid: as ``read``; nothing is changed.
        """
        data = self.raw(commit_id)
        if _open(commit_id, data)[1].signer not in signers:
            return False
        self.write(self.check(commit_id, data))
        return True

    def packs_of(self, commit_id: CommitId) -> set[str]:
        """The packs it needs, whoever signed it; for telling which packs may go.

        Raises:
            ObjectMissing, ObjectCorrupt: as ``read``.
        """
        return decode_placement(commit_id, self.raw(commit_id)).needed()

    def commits(self) -> set[CommitId]:
        """All that have one."""
        return {CommitId(name) for name in os.listdir(self._directory)}

    def delete(self, commit_id: CommitId) -> int:
        """Remove one; returns the bytes freed, 0 if there was none."""
        return delete_file(self._directory / commit_id)

    def sync(self) -> None:
        """Make deletions durable."""
        sync_directory(self._directory)


def _open(commit_id: CommitId, data: bytes) -> tuple[bytes, Signature]:
    try:
        body, checksum, signer, signature = msgpack.unpackb(data)
        if blake3(body).digest() != checksum:
            raise ValueError("its bytes do not match its checksum")
        return body, Signature(signer, signature)
    except (ValueError, TypeError, msgpack.exceptions.UnpackException) as error:
        raise _damaged(commit_id, str(error)) from error


def decode_placement(commit_id: CommitId, data: bytes) -> Placement:
    """The placement of those bytes, whoever signed it; raises ObjectCorrupt."""
    return _decode(commit_id, _open(commit_id, data)[0])


def _encode(placement: Placement) -> bytes:
    packed: bytes = msgpack.packb(
        {
            "version": _VERSION,
            "commit": bytes.fromhex(placement.commit),
            "packs": [None if name is None else bytes.fromhex(name) for name in placement.packs],
            "index": [placement.index.pack, placement.index.frame],
            "bases": [[base.pack, base.frame] for base in placement.bases],
            "since_key": placement.since_key,
        }
    )
    return packed


def _decode(commit_id: CommitId, body: bytes) -> Placement:
    try:
        value = msgpack.unpackb(body)
        if value["version"] not in (2, _VERSION) or value["commit"].hex() != commit_id:
            raise ValueError("it is of another version or commit")
        packs = [None if name is None else _pack_name(name) for name in value["packs"]]
        bases = [_frame_place(base, packs) for base in _bases(value)]
        if len(bases) > _BASES_MOST:
            raise ValueError("its index needs too many others")
        return Placement(
            commit_id, packs, _frame_place(value["index"], packs), bases, int(value["since_key"])
        )
    except (ValueError, TypeError, KeyError, AttributeError, msgpack.exceptions.UnpackException) as error:
        raise _damaged(commit_id, f"{type(error).__name__}: {error}") from error


def _bases(value: Mapping[str, Any]) -> Sequence[Sequence[int]]:
    if value["version"] == _VERSION:
        return list(value["bases"])
    return [] if value["base"] is None else [value["base"]]


def _pack_name(name: bytes) -> str:
    if len(name) != blake3.digest_size:
        raise ValueError("a pack's name has another length")
    return name.hex()


def _frame_place(value: Sequence[int], packs: Sequence[str | None]) -> FramePlace:
    pack, frame = (int(number) for number in value)
    if not 0 <= pack < len(packs) or packs[pack] is None or frame < 0:
        raise ValueError("it names a pack that it does not list")
    return FramePlace(pack, frame)


def _damaged(commit_id: CommitId, cause: str) -> ObjectCorrupt:
    return ObjectCorrupt(
        f"the placement of {commit_id[:10]} is damaged",
        cause=cause,
    )
