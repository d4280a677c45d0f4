"""A bit that changed in a file of an incident or of a recording is found by verify, and never shown as a fact."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from relive.errors import RecordingCorrupt
from relive.incidents import evidence
from relive.incidents.evidence import Evidence, store_evidence
from relive.incidents.incidents import Incidents
from relive.maintenance.incident_check import incident_problems, recording_problems
from relive.maintenance.problems import Kind
from relive.model.commit import CommitId
from relive.model.incident import FailureKind, Sighting
from relive.recording.events import Event, EventKind
from relive.recording.reader import Recording
from relive.recording.writer import RecordingWriter
from store.test_damage import flip

BEFORE = CommitId("b" * 64)
EVENT = Event(1, 1, 1, EventKind.NOTE, 0, 3, b"data", {"pid": 7, "file": "7-1.body"})


@pytest.fixture
def incidents(tmp_path: Path) -> Path:
    """Two incidents, the first with all that can lie beside one."""
    directory = tmp_path / "incidents"
    for number in (1, 2):
        seen = Sighting(kind=FailureKind.ANSWER, fingerprint=f"{number}", summary="it failed", seen_wall_ns=1)
        Incidents(directory).add("pay", "L1", seen, before=BEFORE, at=None, log_end=1, log_tail=["oh"])
    (tmp_path / "bodies").mkdir()
    (tmp_path / "bodies" / "7-1.body").write_bytes(b"long")
    store_evidence(
        directory,
        1,
        Evidence(None, [EVENT], [EVENT], None, b"GET / HTTP/1.1\r\n\r\n", tmp_path / "bodies"),
    )
    return directory


READERS: dict[str, Callable[[Path], Any]] = {
    "1.json": lambda place: Incidents(place).get(1),
    "1.events.jsonl": lambda place: evidence.events_of(place, 1),
    "1.beginning.jsonl": lambda place: evidence.beginning_of(place, 1),
    "1.request": lambda place: evidence.request_of(place, 1),
    "1.bodies/7-1.body": lambda place: evidence.bodies_of(place, 1),
    "1.sums": lambda place: evidence.request_of(place, 1),
}


def test_what_nobody_changed_is_well(incidents):
    assert incident_problems(incidents) == []
    assert {path.name for path in incidents.rglob("1.*") if path.is_file()} >= {"1.sums", "1.request"}
    assert evidence.events_of(incidents, 1) == [EVENT]


@pytest.mark.parametrize("name", READERS)
def test_a_flipped_bit_is_found_and_never_shown_as_a_fact(incidents, name):
    flip(incidents / name, 3)
    assert Kind.INCIDENT in {one.kind for one in incident_problems(incidents)}
    if name == "1.sums":  # which of its lines is wrong cannot be told
        return
    with pytest.raises(RecordingCorrupt):
        READERS[name](incidents)
    assert Incidents(incidents).get(2).number == 2


@pytest.mark.parametrize("name", [name for name in READERS if name not in ("1.json", "1.sums")])
def test_a_file_that_is_gone_is_found(incidents, name):
    (incidents / name).unlink()
    assert [(one.kind, one.name) for one in incident_problems(incidents)] == [(Kind.INCIDENT, name)]


def test_an_incident_of_an_older_relive_is_read_without_sums(incidents):
    text = Incidents(incidents).get(1).model_dump_json(indent=2)
    (incidents / "1.json").write_text(text)
    (incidents / "1.sums").unlink()
    assert incident_problems(incidents) == []
    assert Incidents(incidents).get(1).service == "pay"


def test_a_damaged_incident_still_keeps_its_commits(incidents):
    """Else a flipped bit would have `relive retain` drop what the incident needs."""
    found = Incidents(incidents)
    assert found.pinned() == {BEFORE}
    assert len(found.page().items) == 2
    for number in (1, 2):
        flip(incidents / f"{number}.json", 40)
    assert found.pinned() == {BEFORE}
    incident_problems(incidents)
    assert found.pinned() == {BEFORE}, "a look must not let go of them either"
    assert len(found.page().items) == 2


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE incidents SET before = NULL",
        "UPDATE incidents SET summary = 'all is well'",
        "UPDATE incidents SET service = 'other'",
        "DELETE FROM incidents",
    ],
)
def test_a_changed_index_is_not_believed(incidents, statement):
    found = Incidents(incidents)
    before = found.page().items
    assert found.pinned() == {BEFORE}
    with closing(sqlite3.connect(incidents / "index" / "incidents.sqlite", isolation_level=None)) as database:
        database.execute(statement)
    assert found.page().items == before
    assert found.pinned() == {BEFORE}


def test_a_flipped_bit_of_a_recording_is_found_and_ends_it(tmp_path):
    place = tmp_path / "capsules" / "pay" / "L1" / "inside"
    writer = RecordingWriter(place, keep_bytes=1 << 20, on_trouble=lambda *_: None)
    for _ in range(3):
        writer.append(EventKind.NOTE, 0, 1, b"data" * 100, {"pid": 7})
    writer.close()
    assert list(recording_problems(tmp_path / "capsules")) == []
    (segment,) = Recording(place).segments()
    for at in range(0, segment.stat().st_size, 97):
        whole = segment.read_bytes()
        flip(segment, at)
        assert [one.kind for one in recording_problems(tmp_path / "capsules")] == [Kind.RECORDING], at
        segment.write_bytes(whole)
    shutil.rmtree(place)
