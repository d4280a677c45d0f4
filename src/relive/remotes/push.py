"""Sending a commit to a remote: parts that it does not have, then the placement, then the manifest."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from relive.errors import ObjectCorrupt
from relive.model.commit import CommitId
from relive.remotes.parallel import Show, in_order
from relive.remotes.references import refuse_move, write_tag
from relive.remotes.remote import Remote
from relive.remotes.remote_layout import (
    Piece,
    manifest_path,
    part_directory,
    pieces_of,
    placement_path,
    whole_size,
)
from relive.store import Store
from relive.store.transfer import Outgoing
from relive.store.transfer_parts import TransferPart, check_part

__all__ = ["Pushed", "missing_pieces", "push"]


@dataclass(frozen=True, slots=True)
class Pushed:
    """What a push did.

    Attributes:
        parts, bytes: that were sent; a part may have been sent in part before.
        held: parts that the remote had.
        is_new: the commit was not there before.
    """

    commit: CommitId
    parts: int
    bytes: int
    held: int
    is_new: bool


def push(
    store: Store, remote: Remote, commit_id: CommitId, *, tag: str | None, force: bool, show: Show
) -> Pushed:
    """Send a commit, and let ``tag`` stand for it there; durable there on return.

    Raises:
        RefUnknown, StoreError: it cannot be read here.
        UsageError: the tag names another commit there, and ``force`` is not given; nothing is sent then.
        ExchangeError: the remote cannot take it; what has arrived there counts the next time.
    """
    with store.transfers.hold(commit_id) as outgoing:
        remote.begin_sending()
        if tag is not None and not force:
            refuse_move(remote, tag, commit_id)
        if _is_there(store, remote, outgoing):
            pushed = Pushed(commit_id, 0, 0, len(outgoing.commit.parts), False)
        else:
            pushed = _send(remote, outgoing, show)
        if tag is not None:
            write_tag(remote, tag, commit_id, force=force)
    return pushed


def _is_there(store: Store, remote: Remote, outgoing: Outgoing) -> bool:
    """The remote has the commit with all its parts, though perhaps in other packs than this store."""
    commit = outgoing.commit
    if remote.read(manifest_path(commit.id)) != commit.manifest_bytes:
        return False
    placement = remote.read(placement_path(commit.id))
    if placement is None:
        return False
    try:
        parts = store.transfers.parts_named(commit, placement)
    except ObjectCorrupt:
        return False
    return all(whole_size(sizes) is not None for sizes in _sizes_there(remote, parts).values())


def _send(remote: Remote, outgoing: Outgoing, show: Show) -> Pushed:
    commit = outgoing.commit
    sizes = {part: path.stat().st_size for part, path in outgoing.paths.items()}
    missing = missing_pieces(sizes, _sizes_there(remote, commit.parts))
    parts = {piece.part for piece in missing}
    for part in sorted(parts):
        check_part(part, outgoing.paths[part])  # what is damaged here is not spread
    total = sum(piece.size for piece in missing)

    def send(piece: Piece) -> None:
        with outgoing.paths[piece.part].open("rb") as file:
            remote.write(piece.path, os.pread(file.fileno(), piece.size, piece.offset))

    with show(f"Pushing {commit.id[:10]}", total) as done:
        for piece, _ in in_order(send, missing):
            done(piece.size)
    # The manifest last: who finds it finds all that it names.
    remote.write(placement_path(commit.id), commit.placement_bytes)
    is_new = remote.write_new(manifest_path(commit.id), commit.manifest_bytes)
    if not is_new and remote.read(manifest_path(commit.id)) != commit.manifest_bytes:
        remote.write(manifest_path(commit.id), commit.manifest_bytes)  # it was damaged there
    return Pushed(commit.id, len(parts), total, len(commit.parts) - len(parts), is_new)


def missing_pieces(
    sizes: Mapping[TransferPart, int], there: Mapping[TransferPart, Mapping[str, int]]
) -> list[Piece]:
    """The pieces to send, in the order of the parts: those that the remote does not have in full size."""
    wanted = [piece for part, size in sizes.items() for piece in pieces_of(part, size)]
    return [piece for piece in wanted if there[piece.part].get(piece.name) != piece.size]


def _sizes_there(remote: Remote, parts: Sequence[TransferPart]) -> dict[TransferPart, dict[str, int]]:
    return dict(in_order(lambda part: remote.sizes(part_directory(part)), parts))
