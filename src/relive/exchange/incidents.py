"""Incidents at a remote: case files in pieces, and beside each commit a signed record of each incident that refers to it.

A record is JSON: ``{"body", "signer", "signature"}``, in hexadecimal but for ``body``, the text that is signed: again JSON, with
``version``, the incident's ``id`` and ``times``, the ``case`` (BLAKE3 of the case file) with its ``size``, and the ``commits`` that
a replay needs. It is written last: who finds it finds all that it names.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from relive.config import Settings
from relive.errors import ArchiveInvalid, ObjectCorrupt
from relive.exchange.cases import Taken, commits_of, incident_id, pack_case, take_case
from relive.exchange.layout import PIECE_SIZE, case_directory, incidents_directory, whole_size
from relive.exchange.remote import Remote
from relive.exchange.traffic import Show
from relive.model.commit import CommitId
from relive.model.incident import Incident
from relive.store import Store
from relive.store.incidents import Incidents
from relive.store.keyring import Keyring, Signature
from relive.store.objects import hash_file
from relive.store.troubles import disk_errors

__all__ = ["Record", "fetch_incident", "push_incident", "records_of"]

_CONTEXT = b"relive incident 1\0"
_HASH = r"^[0-9a-f]{64}$"
_NAME = re.compile(r"[0-9a-f]{32}\.json")
_MOST = 4 << 30  # [bytes] of a case file
_RECORDS_MOST = 1000  # of one commit


class Record(BaseModel):
    """What stands beside a commit of an incident that refers to it."""

    model_config = ConfigDict(frozen=True)

    version: int
    id: str = Field(pattern=r"^[0-9a-f]{32}$")
    times: int
    case: str = Field(pattern=_HASH)
    size: int = Field(ge=0, le=_MOST)
    commits: list[CommitId]
    signer: bytes = Field(default=b"", exclude=True)


def push_incident(settings: Settings, store: Store, remote: Remote, incident: Incident, show: Show) -> bool:
    """Send an incident whose commits are at the remote; False if it was there, as often seen as here.

    Raises:
        RecordingCorrupt: something of it is damaged here; nothing is sent then.
        ExchangeError, DiskFull, KeyMissing, KeyWrong: it could not be written or sent.
    """
    keyring, commits = store.anatomy.keyring, commits_of(store, incident)
    name = f"{incident_id(store, incident)}.json"
    for record in _readable(remote, keyring, commits[:1], name):
        if record.times >= incident.times and _is_whole(remote, record):
            return False
    staging = store.stage()
    try:
        case = staging.files / "case"
        with disk_errors("packing an incident", staging.directory):
            pack_case(settings, store, incident, case)
            record = Record(
                version=1,
                id=incident_id(store, incident),
                times=incident.times,
                case=hash_file(case),
                size=case.stat().st_size,
                commits=commits,
            )
        _send(remote, record, case, show)
    finally:
        staging.discard()
    body = record.model_dump_json()
    signed = keyring.sign(_CONTEXT + body.encode())
    told = {"body": body, "signer": signed.signer.hex(), "signature": signed.signature.hex()}
    for commit in commits:
        remote.write(f"{incidents_directory(commit)}/{name}", json.dumps(told).encode())
    return True


def _send(remote: Remote, record: Record, case: Path, show: Show) -> None:
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


def _is_whole(remote: Remote, record: Record) -> bool:
    return whole_size(remote.sizes(case_directory(record.case))) == record.size


def records_of(remote: Remote, keyring: Keyring, commit: CommitId) -> list[Record]:
    """The incidents that refer to a commit at the remote.

    Raises:
        SignatureInvalid: one is not signed by this host or one that it trusts, or was changed after it was signed.
        ObjectCorrupt: one is no record.
    """
    names = sorted(name for name in remote.sizes(incidents_directory(commit)) if _NAME.fullmatch(name))
    return [_read(remote, keyring, commit, name) for name in names[:_RECORDS_MOST]]


def _readable(remote: Remote, keyring: Keyring, commits: Sequence[CommitId], name: str) -> Iterator[Record]:
    for commit in commits:
        if remote.read(f"{incidents_directory(commit)}/{name}") is not None:
            yield _read(remote, keyring, commit, name)


def _read(remote: Remote, keyring: Keyring, commit: CommitId, name: str) -> Record:
    data = remote.read(f"{incidents_directory(commit)}/{name}") or b""
    what = f"the incident {name[:10]} at {remote.url}"
    try:
        told = json.loads(data)
        body = told["body"].encode()
        signature = Signature(bytes.fromhex(told["signer"]), bytes.fromhex(told["signature"]))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise _damaged(what, str(error)) from error
    keyring.verify(what, signature, _CONTEXT + body)
    try:
        record = Record.model_validate_json(body)
    except ValidationError as error:
        raise _damaged(what, "it is signed, and yet no record that this Relive can read") from error
    # A right record in another place must not stand for what was asked for.
    if record.version != 1 or f"{record.id}.json" != name or commit not in record.commits:
        raise _damaged(what, "it belongs to another commit or incident")
    return record.model_copy(update={"signer": signature.signer})


def fetch_incident(settings: Settings, store: Store, remote: Remote, record: Record, show: Show) -> Taken:
    """Take in an incident of which the record was read; durable on return.

    Raises:
        ObjectCorrupt, ArchiveInvalid: it was changed at the remote or on the way; nothing of it was taken in.
        ExchangeError, DiskFull, StoreError, KeyMissing, KeyWrong: it could not be fetched, written, or opened.
    """
    for one in Incidents(settings.incidents).list():
        if incident_id(store, one) == record.id and (one.origin is None or one.times >= record.times):
            return Taken(one.number, False)
    staging = store.stage()
    try:
        case = staging.files / "case"
        with disk_errors("fetching an incident", staging.directory):
            _fetch(remote, record, case, show)
            if hash_file(case) != record.case:
                raise _damaged(f"the incident {record.id[:10]} at {remote.url}", "its case file was changed")
            return take_case(settings, store, case, record.signer, staging.images)
    finally:
        staging.discard()


def _fetch(remote: Remote, record: Record, goal: Path, show: Show) -> None:
    directory = case_directory(record.case)
    with goal.open("xb") as file, show(f"Pulling incident {record.id[:10]}", record.size) as done:
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


def _damaged(what: str, cause: str) -> ObjectCorrupt:
    return ObjectCorrupt(f"{what} is damaged", cause=cause, remedy="push it again from where it was seen")
