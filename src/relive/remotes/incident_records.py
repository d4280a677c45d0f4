"""Signed records of incidents, by which they are known on their way: to a remote and from there, or in an archive.

A record is JSON: ``{"body", "signer", "signature"}``, in hexadecimal but for ``body``, the text that is signed: again JSON, with
``version``, the incident's ``id`` and ``times``, the ``case`` (BLAKE3 of the case file) with its ``size``, and the ``commits`` that
a replay needs.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from relive.config import Settings
from relive.errors import ObjectCorrupt
from relive.incidents.incidents import Incidents
from relive.kernel.disk_errors import disk_errors
from relive.model.commit import CommitId
from relive.model.incident import Incident
from relive.remotes.case_transfer import ReceivedIncident, commits_of, incident_id, pack_case
from relive.store import Store
from relive.store.keyring import Keyring, Signature
from relive.store.objects import hash_file

__all__ = ["IncidentRecord", "Packed", "damaged_incident", "here_already", "packed", "read_record"]

_CONTEXT = b"relive incident 1\0"
_HASH = r"^[0-9a-f]{64}$"
_MOST = 4 << 30  # [bytes] of a case file


class IncidentRecord(BaseModel):
    """What stands beside a commit of an incident that refers to it."""

    model_config = ConfigDict(frozen=True)

    version: int
    id: str = Field(pattern=r"^[0-9a-f]{32}$")
    times: int
    case: str = Field(pattern=_HASH)
    size: int = Field(ge=0, le=_MOST)
    commits: list[CommitId]
    signer: bytes = Field(default=b"", exclude=True)


@dataclass(frozen=True, slots=True)
class Packed:
    """An incident ready to leave: its signed record, as it is written, and the case file."""

    id: str
    record: bytes
    facts: IncidentRecord
    case: Path


@contextlib.contextmanager
def packed(settings: Settings, store: Store, incident: Incident) -> Iterator[Packed]:
    """Pack an incident for the time of the block.

    Raises:
        RecordingCorrupt: something of it is damaged here; it is not spread.
        DiskFull, KeyMissing, KeyWrong: it could not be written.
    """
    uid = incident_id(store, incident)
    staging = store.stage()
    try:
        case = staging.files / "case"
        with disk_errors("packing an incident", staging.directory):
            pack_case(settings, store, incident, case)
            facts = IncidentRecord(
                version=1,
                id=uid,
                times=incident.times,
                case=hash_file(case),
                size=case.stat().st_size,
                commits=commits_of(store, incident),
            )
        body = facts.model_dump_json()
        signed = store.internals.keyring.sign(_CONTEXT + body.encode())
        yield Packed(uid, _written(body, signed), facts, case)
    finally:
        staging.discard()


def _written(body: str, signature: Signature) -> bytes:
    envelope = {"body": body, "signer": signature.signer.hex(), "signature": signature.signature.hex()}
    return json.dumps(envelope).encode()


def read_record(what: str, data: bytes, keyring: Keyring) -> IncidentRecord:
    """A record as it was written.

    Raises:
        SignatureInvalid: it is not signed by this host or one that it trusts, or was changed after it was signed.
        ObjectCorrupt: it is none.
    """
    try:
        envelope = json.loads(data)
        body = envelope["body"].encode()
        signature = Signature(bytes.fromhex(envelope["signer"]), bytes.fromhex(envelope["signature"]))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise damaged_incident(what, str(error)) from error
    if _written(body.decode(), signature) != data:
        raise damaged_incident(what, "it says the same in other bytes than Relive writes")
    keyring.verify(what, signature, _CONTEXT + body)
    try:
        record = IncidentRecord.model_validate_json(body)
    except ValidationError as error:
        raise damaged_incident(what, "it is signed, and yet no record that this Relive can read") from error
    if record.version != 1:
        raise damaged_incident(what, f"it is of version {record.version}, which this Relive does not know")
    return record.model_copy(update={"signer": signature.signer})


def here_already(settings: Settings, store: Store, record: IncidentRecord) -> ReceivedIncident | None:
    """The incident of a record, where it is this home's own, or was seen here as often; else None."""
    for one in Incidents(settings.incidents).list():
        if incident_id(store, one) == record.id and (one.origin is None or one.times >= record.times):
            return ReceivedIncident(one.number, False)
    return None


def damaged_incident(what: str, cause: str) -> ObjectCorrupt:
    """The error of an incident that was changed on its way."""
    return ObjectCorrupt(f"{what} is damaged", cause=cause, remedy="push it again from where it was seen")
