"""Taking a commit in from an archive of Relive, with its incidents: read and judged first, each part checked by its name."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from relive.config import Settings
from relive.errors import ObjectCorrupt, ObjectMissing
from relive.kernel.disk_errors import disk_errors
from relive.model.commit import CommitId, HostFacts
from relive.remotes.archive import ArchiveContents, ArchiveReader, case_name, entry_name, invalid, record_name
from relive.remotes.case_transfer import ReceivedIncident, ingest_case
from relive.remotes.compatibility import refuse_unfit
from relive.remotes.imported import Imported
from relive.remotes.incident_records import IncidentRecord, here_already, read_record
from relive.remotes.parallel import Show
from relive.store import Store
from relive.store.objects import hash_file
from relive.store.pages.packfile import HEAD_SIZE
from relive.store.staging import Staging
from relive.store.transfer import Transfers
from relive.store.transfer_parts import PartKind, TransferCommit, TransferPart

__all__ = ["ArchiveImport"]


class ArchiveImport:
    """Of an archive of Relive's own. All of it is read and judged before the store shows anything."""

    def __init__(self, store: Store, reader: ArchiveReader, host: HostFacts, *, force: bool) -> None:
        self._store, self._reader = store, reader
        self._transfers = store.transfers
        self._host, self._force = host, force
        self._passed: set[TransferPart] = set()
        self._arrived: set[TransferPart] = set()
        self._bytes = 0

    def run(self, settings: Settings | None, size: int, show: Show) -> Imported:
        """Durable on return; ``size``: of the archive. Raises as ``operations.imports.import_archive``."""
        with self._transfers.receiving(), contextlib.ExitStack() as stack:
            held = self._reader.held()
            first = held.commits[0]
            if not held.incidents and self._transfers.whole(first) is not None:
                return Imported(first, 0, 0, len(self._open(held, first).parts), False)
            with show(f"Importing {first[:10]}", size) as done:
                read = [self._read_commit(held, one, done) for one in held.commits]
                cases = [self._read_incident(one, stack, done) for one in held.incidents]
                self._reader.end()
            wanted = read if settings is not None else read[:1]
            for commit, _, new_bytes in wanted:
                self._receive(commit, new_bytes)
            taken = [self._ingest_case(settings, *case) for case in cases] if settings is not None else []
        parts = sum(len(commit.parts) for commit, _, _ in read)
        arrived = len(self._arrived)
        return Imported(first, arrived, self._bytes, parts - arrived, read[0][1], tuple(taken))

    def _open(self, held: ArchiveContents, commit_id: CommitId) -> TransferCommit:
        manifest = self._reader.content(held.manifest(commit_id))
        placement = self._reader.content(held.placement(commit_id))
        return self._transfers.open(commit_id, manifest, lambda: placement)

    def _read_commit(
        self, held: ArchiveContents, commit_id: CommitId, done: Callable[[int], None]
    ) -> tuple[TransferCommit, bool, int]:
        """(the commit, whether it was not here before, bytes of it that were gathered)."""
        is_new = self._transfers.whole(commit_id) is None
        commit = self._open(held, commit_id)
        if is_new and not self._force:
            refuse_unfit(commit.manifest.host, self._host)
        missing = set(self._transfers.missing(commit))
        size = 0
        for part in commit.parts:
            if part not in self._passed:
                size += _receive_part(self._transfers, self._reader, part, part in missing, done)
        self._arrived |= missing - self._passed
        self._passed |= set(commit.parts)
        self._bytes += size
        return commit, is_new, size

    def _read_incident(
        self, uid: str, stack: contextlib.ExitStack, done: Callable[[int], None]
    ) -> tuple[IncidentRecord, Staging]:
        """Its record, and where its case file lies; both are as they were signed."""
        name, keyring = self._reader.name, self._store.internals.keyring
        record = read_record(
            f"the incident {uid[:10]} in {name}", self._reader.content(record_name(uid)), keyring
        )
        if record.id != uid:
            raise invalid(name, f"the incident {uid[:10]} is another one")
        staging = self._store.stage()
        stack.callback(staging.discard)
        case = staging.files / "case"
        with disk_errors("importing an incident", staging.directory), case.open("wb") as file:
            for chunk in self._reader.chunks(case_name(uid), most=record.size):
                file.write(chunk)
                done(len(chunk))
        if hash_file(case) != record.case:
            raise invalid(name, f"the incident {uid[:10]} was changed")
        return record, staging

    def _receive(self, commit: TransferCommit, new_bytes: int) -> None:
        if self._transfers.whole(commit.id) is None and self._transfers.receive(commit, new_bytes):
            raise ObjectMissing(
                "parts of the commit are gone again",
                cause="other commits that it shares them with are being dropped here",
                remedy="run it again",
            )

    def _ingest_case(self, settings: Settings, record: IncidentRecord, staging: Staging) -> ReceivedIncident:
        here = here_already(settings, self._store, record)
        if here is not None:
            return here
        return ingest_case(settings, self._store, staging.files / "case", record.signer, staging.images)


def _receive_part(
    transfers: Transfers,
    reader: ArchiveReader,
    part: TransferPart,
    is_missing: bool,
    done: Callable[[int], None],
) -> int:
    """Gather a part, or pass it over where it is not missing; returns the bytes gathered."""
    chunks = reader.chunks(entry_name(part))
    if not is_missing:
        for chunk in chunks:
            done(len(chunk))
        return 0
    size = 0
    target = transfers.arriving(part)
    with disk_errors("receiving a commit", target.parent), target.open("wb") as file:
        for chunk in chunks:
            if size == 0 and part.kind is PartKind.PACK:
                transfers.check_seal(part, chunk[:HEAD_SIZE])
            file.write(chunk)
            size += len(chunk)
            done(len(chunk))
    try:
        transfers.check_arrived(part)
    except ObjectCorrupt as error:
        raise invalid(reader.name, f"{part} was changed: {error.cause}") from error
    return size
