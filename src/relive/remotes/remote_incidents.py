"""Incidents at a remote: case files in pieces; beside each commit a record of each incident that refers to it.

The record is written last: who finds it finds all that it names.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from relive.config import Settings
from relive.errors import ArchiveInvalid
from relive.kernel.disk_errors import disk_errors
from relive.model.commit import CommitId
from relive.model.incident import Incident
from relive.remotes.case_transfer import ReceivedIncident, commits_of, incident_id, ingest_case
from relive.remotes.incident_records import (
    IncidentRecord,
    damaged_incident,
    here_already,
    packed,
    read_record,
)
from relive.remotes.parallel import Show
from relive.remotes.remote import Remote
from relive.remotes.remote_layout import PIECE_SIZE, case_directory, incidents_directory, whole_size
from relive.store import Store
from relive.store.keyring import Keyring
from relive.store.objects import hash_file

__all__ = ["fetch_incident", "push_incident", "records_of"]

_NAME = re.compile(r"[0-9a-f]{32}\.json")
_RECORDS_MOST = 1000  # of one commit


def push_incident(settings: Settings, store: Store, remote: Remote, incident: Incident, show: Show) -> bool:
    """Send an incident whose commits are at the remote; False if it was there, as often seen as here.

    Raises:
        RecordingCorrupt: something of it is damaged here; nothing is sent then.
        ExchangeError, DiskFull, KeyMissing, KeyWrong: it could not be written or sent.
    """
    keyring, commits = store.internals.keyring, commits_of(store, incident)
    name = f"{incident_id(store, incident)}.json"
    for record in _readable(remote, keyring, commits[:1], name):
        if record.times >= incident.times and _is_whole(remote, record):
            return False
    with packed(settings, store, incident) as ready:
        _send(remote, ready.facts, ready.case, show)
        for commit in commits:
            remote.write(f"{incidents_directory(commit)}/{name}", ready.record)
    return True


def _send(remote: Remote, record: IncidentRecord, case: Path, show: Show) -> None:
    directory = case_directory(record.case)
    there = remote.sizes(directory)
    with case.open("rb") as file, show(f"Pushing incident {record.id[:10]}", record.size) as done:
        for number, size in enumerate(_pieces(record.size)):
            data = os.pread(file.fileno(), size, number * PIECE_SIZE)
            if there.get(f"{number:06}") != size:
                remote.write(f"{directory}/{number:06}", data)
            done(size)


def _pieces(size: int) -> Iterator[int]:
    for begin in range(0, max(size, 1), PIECE_SIZE):
        yield min(PIECE_SIZE, size - begin)


def _is_whole(remote: Remote, record: IncidentRecord) -> bool:
    return whole_size(remote.sizes(case_directory(record.case))) == record.size


def records_of(remote: Remote, keyring: Keyring, commit: CommitId) -> list[IncidentRecord]:
    """The incidents that refer to a commit at the remote.

    Raises:
        SignatureInvalid: one is not signed by this host or one that it trusts, or was changed after it was signed.
        ObjectCorrupt: one is no record.
    """
    names = sorted(name for name in remote.sizes(incidents_directory(commit)) if _NAME.fullmatch(name))
    return [_read(remote, keyring, commit, name) for name in names[:_RECORDS_MOST]]


def _readable(
    remote: Remote, keyring: Keyring, commits: Sequence[CommitId], name: str
) -> Iterator[IncidentRecord]:
    for commit in commits:
        if remote.read(f"{incidents_directory(commit)}/{name}") is not None:
            yield _read(remote, keyring, commit, name)


def _read(remote: Remote, keyring: Keyring, commit: CommitId, name: str) -> IncidentRecord:
    data = remote.read(f"{incidents_directory(commit)}/{name}") or b""
    what = f"the incident {name[:10]} at {remote.url}"
    record = read_record(what, data, keyring)
    # A right record in another place must not stand for what was asked for.
    if f"{record.id}.json" != name or commit not in record.commits:
        raise damaged_incident(what, "it belongs to another commit or incident")
    return record


def fetch_incident(
    settings: Settings, store: Store, remote: Remote, record: IncidentRecord, show: Show
) -> ReceivedIncident:
    """Take in an incident of which the record was read; durable on return.

    Raises:
        ObjectCorrupt, ArchiveInvalid: it was changed at the remote or on the way; nothing of it was taken in.
        ExchangeError, DiskFull, StoreError, KeyMissing, KeyWrong: it could not be fetched, written, or opened.
    """
    here = here_already(settings, store, record)
    if here is not None:
        return here
    staging = store.stage()
    try:
        case = staging.files / "case"
        with disk_errors("fetching an incident", staging.directory):
            _fetch(remote, record, case, show)
            if hash_file(case) != record.case:
                raise damaged_incident(
                    f"the incident {record.id[:10]} at {remote.url}", "its case file was changed"
                )
            return ingest_case(settings, store, case, record.signer, staging.images)
    finally:
        staging.discard()


def _fetch(remote: Remote, record: IncidentRecord, target: Path, show: Show) -> None:
    directory = case_directory(record.case)
    with target.open("xb") as file, show(f"Pulling incident {record.id[:10]}", record.size) as done:
        for number, size in enumerate(_pieces(record.size)):
            data = remote.read(f"{directory}/{number:06}")
            if data is None or len(data) != size:
                raise ArchiveInvalid(
                    f"the incident {record.id[:10]} is not whole at {remote.url}",
                    cause="a piece of its case file was removed there or cut off",
                    remedy="push it again from where it was seen",
                )
            file.write(data)
            done(size)
