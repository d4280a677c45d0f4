"""What lies beside an incident is masked when it is written, and again with what was learned since."""

from __future__ import annotations

import json
from pathlib import Path

from relive.agent.failures.closing import close, masked_evidence
from relive.incidents.evidence import Evidence, bodies_of, store_evidence
from relive.incidents.incidents import Incidents
from relive.incidents.report.masking import FileMask
from relive.model.incident import FailureKind, Sighting
from relive.model.launch import Launch
from relive.recording.events import Event, EventKind

SECRET = "correct-horse-17"


def event(kind: EventKind, data: bytes = b"", **fields: object) -> Event:
    return Event(1, 1, 1, kind, 0, 1, data, {"pid": 2, "own_seq": 1, "lane": 1, **fields})


def evidence(**more: object) -> Evidence:
    events = [
        event(EventKind.LOG_RECORD, text=f"opened with {SECRET}"),
        event(EventKind.HANDLING_BODY, SECRET.encode()),
    ]
    launch = Launch(command=["serve", SECRET], directory="/", secret_names=["door"])
    return Evidence(json.dumps({"text": SECRET}).encode(), events, launch=launch, **more)  # type: ignore[arg-type]


def test_the_request_tells_what_is_secret_in_all_of_it() -> None:
    masked = masked_evidence(
        evidence(request=f"GET /?password={SECRET} HTTP/1.1\r\n\r\n".encode()), FileMask()
    )
    told = f"{masked.package!r} {masked.events} {masked.launch}"
    assert SECRET not in told
    assert masked.launch is not None
    assert masked.launch.secret_names == ["door"]
    assert SECRET.encode() in (masked.request or b"")  # a replay sends it again


def test_closing_masks_what_was_learned_since(tmp_path: Path) -> None:
    incidents = Incidents(tmp_path)
    sighting = Sighting(
        kind=FailureKind.EXCEPTION, fingerprint="x", summary=f"KeyError: {SECRET}", seen_wall_ns=1
    )
    incident = incidents.add("pay", "L1", sighting, before=None, at=None, log_end=0, log_tail=[SECRET])
    mask = FileMask()
    store_evidence(tmp_path, incident.number, masked_evidence(evidence(), mask))
    bodies_of(tmp_path, incident.number).mkdir()
    (bodies_of(tmp_path, incident.number) / "2-1.body").write_bytes(SECRET.encode())
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert any(SECRET.encode() in path.read_bytes() for path in written)
    mask.learn(SECRET)
    close(incidents, tmp_path, incident.number, mask)
    assert [
        path for path in tmp_path.rglob("*") if path.is_file() and SECRET.encode() in path.read_bytes()
    ] == []
    assert "<secret:" in incidents.get(incident.number).sighting.summary
