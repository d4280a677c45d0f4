"""What lies beside an incident, without the secrets that are known: when it is written, and again when the incident is closed,
since more are known by then. What was learned late is masked early too.

The request as it was on the wire (``N.request``) stays: a replay sends it again.
"""

from __future__ import annotations

import contextlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from relive.errors import RecordingCorrupt, ReliveError
from relive.incidents import evidence as beside
from relive.incidents.evidence import Evidence
from relive.incidents.incidents import Incidents
from relive.incidents.report.masking import Mask, masked_incident
from relive.model.incident import Incident
from relive.model.launch import Launch
from relive.recording.events import Event

__all__ = ["close", "masked_evidence"]

_FIXED = ("version", "type", "fingerprint", "where", "revision", "cwd")


def masked_evidence(evidence: Evidence, mask: Mask) -> Evidence:
    """The same, with all that it tells of secrets masked in all of it."""
    if evidence.request is not None:
        mask.data(evidence.request)  # for what it learns of it
    before = -1
    while before != mask.learned:
        before = mask.learned
        evidence = replace(
            evidence,
            package=_json(evidence.package, mask),
            events=[_event(one, mask) for one in evidence.events],
            beginning=[_event(one, mask) for one in evidence.beginning],
            launch=_launch(evidence.launch, mask),
        )
    return evidence


def _json(data: bytes | None, mask: Mask) -> bytes | None:
    if data is None:
        return None
    fields = json.loads(data)
    masked = mask.tree(fields)
    # A secret may be, by chance, a part of these; they are of a fixed form, and hold none.
    masked |= {name: fields[name] for name in _FIXED if name in fields}
    for link, whole in zip(masked.get("chain", ()), fields.get("chain", ()), strict=True):
        link["relation"] = whole.get("relation")
    return data if masked == fields else json.dumps(masked, ensure_ascii=False).encode("utf-8", "replace")


def _launch(launch: Launch | None, mask: Mask) -> Launch | None:
    return launch.model_copy(update={"command": mask.tree(launch.command)}) if launch is not None else None


def _event(event: Event, mask: Mask) -> Event:
    fields: dict[str, Any] = mask.tree(dict(event.fields))
    data = mask.data(event.data)
    return (
        event if fields == event.fields and data == event.data else replace(event, fields=fields, data=data)
    )


def close(incidents: Incidents, directory: Path, number: int, mask: Mask) -> Incident:
    """Mask again all that is kept of an incident, durable on return; raises IncidentUnknown.

    What cannot be read or written stays as it is: it was masked with what was known when it was written.
    """
    incident = incidents.get(number)
    masked = masked_incident(masked_incident(incident, mask), mask)
    if masked != incident:
        incidents.save(masked)
    with contextlib.suppress(RecordingCorrupt, ReliveError, ValueError):
        kept = beside.read(directory, number)
        again = masked_evidence(kept, mask)
        if again != kept:
            beside.replace(directory, number, again)
    with contextlib.suppress(ReliveError, OSError):
        bodies = {body: body.read_bytes() for body in beside.bodies_of(directory, number).glob("*.body")}
        clean = {body: mask.data(data) for body, data in bodies.items()}
        beside.replace_bodies(
            directory, number, {body: data for body, data in clean.items() if data != bodies[body]}
        )
    return masked
