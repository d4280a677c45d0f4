"""Fetching a commit from a remote: its manifest and placement are read and judged first, then what is missing here travels."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from relive.errors import ObjectCorrupt, ObjectMissing
from relive.kernel.disk_errors import disk_errors
from relive.model.commit import CommitId, HostFacts
from relive.remotes.compatibility import refuse_unfit
from relive.remotes.parallel import Show, in_order
from relive.remotes.references import unknown_there
from relive.remotes.remote import Remote
from relive.remotes.remote_layout import (
    PIECE_SIZE,
    Piece,
    manifest_path,
    part_directory,
    pieces_of,
    placement_path,
    whole_size,
)
from relive.store import Store
from relive.store.transfer import Transfers
from relive.store.transfer_parts import PartKind, TransferCommit, TransferPart

__all__ = ["Pulled", "pieces_to_fetch", "pull"]

_ROUNDS = 3  # what the commit shares with others here may be dropped meanwhile, and is fetched then


@dataclass(frozen=True, slots=True)
class Pulled:
    """What a pull did.

    Attributes:
        parts, bytes: that were fetched; a part may have been fetched in part before.
        held: parts that were here.
        is_new: the commit was not here before.
    """

    commit: CommitId
    parts: int
    bytes: int
    held: int
    is_new: bool


def pull(
    store: Store, remote: Remote, commit_id: CommitId, host: HostFacts, *, force: bool, show: Show
) -> Pulled:
    """Fetch a commit; durable here on return.

    Args:
        force: fetch it although ``host`` cannot run it.

    Raises:
        RefUnknown: the remote does not have it.
        HostUnfit, SignatureInvalid, KeyMissing, KeyWrong: it cannot run here, is not trusted, or cannot be opened here; nothing
            has travelled then.
        ObjectCorrupt: something of it was changed at the remote or on the way; it is named, and not taken in.
        ExchangeError, DiskFull: the transfer broke off; what has arrived counts the next time.
    """
    remote.check_format()
    transfers = store.transfers
    with transfers.receiving():
        here = transfers.whole(commit_id)
        if here is not None:
            return Pulled(commit_id, 0, 0, len(here.parts), False)
        commit = _open(transfers, remote, commit_id)
        if not force:
            refuse_unfit(commit.manifest.host, host)
        fetched: set[TransferPart] = set()
        size = 0
        for _ in range(_ROUNDS):
            parts, more = _fetch_missing(transfers, remote, commit, show)
            fetched, size = fetched | parts, size + more
            if not transfers.receive(commit, size):
                return Pulled(commit_id, len(fetched), size, len(commit.parts) - len(fetched), True)
    raise ObjectMissing(
        "parts of the commit are gone again",
        cause="other commits that it shares them with are being dropped here",
        remedy="run it again",
    )


def _open(transfers: Transfers, remote: Remote, commit_id: CommitId) -> TransferCommit:
    manifest = remote.read(manifest_path(commit_id))
    if manifest is None:
        raise unknown_there(remote, commit_id)

    def placement() -> bytes:
        found = remote.read(placement_path(commit_id))
        if found is None:
            raise _not_there(remote, f"the placement of {commit_id[:10]}")
        return found

    return transfers.open(commit_id, manifest, placement)


def _fetch_missing(
    transfers: Transfers, remote: Remote, commit: TransferCommit, show: Show
) -> tuple[set[TransferPart], int]:
    """Gather what is not in the store; returns the parts that travelled, and how many bytes did."""
    sizes = _sizes_there(remote, transfers.missing(commit))
    _refuse_sealed(transfers, remote, commit, sizes)
    pieces = pieces_to_fetch(sizes, {part: _gathered(transfers.arriving(part)) for part in sizes})
    total = sum(piece.size for piece in pieces)
    with show(f"Pulling {commit.id[:10]}", total) as done:
        spoilt = _fetch(transfers, remote, pieces, done)
        # What lay here from the last time was not sound; now all of these parts is fetched anew.
        anew = [piece for part in spoilt for piece in pieces_of(part, sizes[part])]
        _fetch(transfers, remote, anew, done)
    return {piece.part for piece in pieces}, total + sum(piece.size for piece in anew)


def pieces_to_fetch(
    sizes: Mapping[TransferPart, int], gathered: Mapping[TransferPart, int | None]
) -> list[Piece]:
    """The pieces that are still to come, part by part in their order; ``gathered`` are bytes that lie here already."""
    pieces = []
    for part, size in sizes.items():
        have = gathered[part]
        if have == size:
            continue
        begin = 0 if have is None or have > size else have // PIECE_SIZE * PIECE_SIZE
        pieces += [piece for piece in pieces_of(part, size) if piece.offset >= begin]
    return pieces


def _gathered(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return None


def _fetch(
    transfers: Transfers, remote: Remote, pieces: Sequence[Piece], done: Callable[[int], None]
) -> list[TransferPart]:
    """Fetch pieces, and check each part when its last one is there; returns parts whose earlier pieces were not sound."""
    first = {piece.part: piece.number for piece in reversed(pieces)}
    last = {piece.part: piece.number for piece in pieces}
    spoilt = []
    for piece, data in in_order(lambda piece: remote.read(piece.path), pieces):
        if data is None or len(data) != piece.size:
            raise _not_there(remote, str(piece.part))
        with disk_errors("receiving a commit", transfers.arriving(piece.part).parent):
            _write_piece(transfers.arriving(piece.part), piece, data)
        done(piece.size)
        if piece.number == last[piece.part]:
            try:
                transfers.check_arrived(piece.part)
            except ObjectCorrupt as error:
                if first[piece.part] == 0:
                    raise _changed(remote, piece.part, error) from error
                spoilt.append(piece.part)
    return spoilt


def _write_piece(path: Path, piece: Piece, data: bytes) -> None:
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.ftruncate(file, piece.offset)
        rest = memoryview(data)
        while rest:
            rest = rest[os.pwrite(file, rest, piece.offset + len(data) - len(rest)) :]
    finally:
        os.close(file)


def _sizes_there(remote: Remote, parts: Sequence[TransferPart]) -> dict[TransferPart, int]:
    """How large the parts are at the remote; raises ObjectMissing where one is not whole."""
    found = {}
    for part, sizes in in_order(lambda part: remote.sizes(part_directory(part)), parts):
        size = whole_size(sizes)
        if size is None:
            raise _not_there(remote, str(part))
        found[part] = size
    return found


def _refuse_sealed(
    transfers: Transfers, remote: Remote, commit: TransferCommit, missing: Mapping[TransferPart, int]
) -> None:
    """Raises KeyMissing, KeyWrong where the commit will not be opened here, before it travels."""
    index = commit.placement.index
    pack = TransferPart(PartKind.PACK, commit.placement.packs[index.pack] or "")
    if pack in missing:
        pieces = pieces_of(pack, missing[pack])
        try:
            transfers.check_opens(
                pack,
                missing[pack],
                index.frame,
                lambda offset, size: _read_range(remote, pieces, offset, size),
            )
        except ObjectCorrupt as error:
            raise _changed(remote, pack, error) from error


def _read_range(remote: Remote, pieces: Sequence[Piece], offset: int, size: int) -> bytes:
    """Bytes of a part, over the borders of its pieces; raises ObjectMissing where they are not all there."""
    found = b""
    for piece in pieces:
        begin, end = max(offset, piece.offset), min(offset + size, piece.offset + piece.size)
        if begin < end:
            data = remote.read(piece.path, begin - piece.offset, end - begin)
            if data is None or len(data) != end - begin:
                raise _not_there(remote, str(piece.part))
            found += data
    return found


def _not_there(remote: Remote, what: str) -> ObjectMissing:
    return ObjectMissing(
        f"{what} is not at {remote.url}, though the commit needs it",
        cause="it was removed there or cut off",
        remedy="push the commit again from a host that has it; that sends what is missing",
    )


def _changed(remote: Remote, part: TransferPart, error: ObjectCorrupt) -> ObjectCorrupt:
    return ObjectCorrupt(
        f"{part} from {remote.url} is damaged",
        cause=f"{error.cause}; it was changed there or on the way, and was not taken in",
        remedy=f"run it again; if it stays so, remove {part_directory(part)} there and push the commit again",
    )
