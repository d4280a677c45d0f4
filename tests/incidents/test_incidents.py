"""Incidents keep their numbers, and a torn file is no incident."""

from __future__ import annotations

import errno
import os
import threading

import pytest

from relive.errors import DiskFull, IncidentUnknown, RecordingCorrupt
from relive.incidents.incidents import Incidents
from relive.model.commit import CommitId
from relive.model.incident import FailureKind, Incident, Sighting

BEFORE, AT = CommitId("b" * 64), CommitId("a" * 64)


def sighting(**fields) -> Sighting:
    return Sighting(
        **{
            "kind": FailureKind.ANSWER,
            "fingerprint": "answer 500 GET /",
            "summary": "it failed",
            "seen_wall_ns": 1,
        }
        | fields
    )


def add(incidents: Incidents, service: str = "pay", **fields) -> Incident:
    facts = {"before": BEFORE, "at": None, "log_end": 10, "log_tail": ["oh"]} | fields
    return incidents.add(service, "L1", sighting(), **facts)


@pytest.fixture
def incidents(tmp_path) -> Incidents:
    return Incidents(tmp_path / "incidents")


def test_the_first_is_number_one_and_they_are_listed_newest_first(incidents):
    assert incidents.list() == []
    numbers = [add(incidents).number for _ in range(3)]
    assert numbers == [1, 2, 3]
    assert [one.number for one in incidents.list()] == [3, 2, 1]


def test_what_belongs_to_it_is_laid_before_anybody_sees_it(incidents):
    """Also an incident whose evidence finds no room is there."""
    seen = []
    one = add(incidents, lay=lambda number: seen.append((number, incidents.list())))
    assert seen == [(one.number, [])] and incidents.list() == [one]

    def full(_number: int) -> None:
        raise DiskFull("no room")

    with pytest.raises(DiskFull):
        add(incidents, lay=full)
    assert [one.number for one in incidents.list()] == [2, 1]


def test_only_its_owner_can_read_an_incident(incidents, tmp_path):
    one = add(incidents)
    incidents.save(one)
    assert (tmp_path / "incidents" / f"{one.number}.json").stat().st_mode & 0o777 == 0o600


def test_an_incident_comes_back_as_it_was(incidents):
    one = add(incidents, at=AT)
    assert incidents.get(one.number) == one


def test_only_those_of_a_service(incidents):
    add(incidents)
    other = add(incidents, service="other")
    assert incidents.list("other") == [other]


def test_saving_replaces_it(incidents):
    one = add(incidents)
    again = one.model_copy(update={"times": 2})
    incidents.save(again)
    assert incidents.get(one.number) == again
    assert incidents.list() == [again]


def test_an_unknown_number_is_refused_with_the_command_that_lists(incidents):
    with pytest.raises(IncidentUnknown) as caught:
        incidents.get(7)
    assert "relive incidents" in (caught.value.remedy or "")


@pytest.mark.parametrize("junk", [b"", b"{", b"\xff", b"[]", b'{"number": 2}'])
def test_a_torn_file_is_no_incident_but_keeps_its_number(incidents, tmp_path, junk):
    one = add(incidents)
    (tmp_path / "incidents" / "2.json").write_bytes(junk)
    assert incidents.list() == [one]
    # One that is empty was never written; what else stands there was an incident once, and is not hidden.
    with pytest.raises(RecordingCorrupt if junk else IncidentUnknown):
        incidents.get(2)
    assert add(incidents).number == 3


def test_two_agents_never_share_a_number(incidents):
    """As two processes would: the number is taken by creating its file."""
    found: list[int] = []
    threads = [
        threading.Thread(target=lambda: found.extend(add(incidents).number for _ in range(20)))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == list(range(1, 81))


def test_commits_that_incidents_name_are_pinned(incidents):
    add(incidents, at=AT)
    add(incidents, before=None)
    assert incidents.pinned() == {BEFORE, AT}


def test_a_full_disk_is_told_and_leaves_no_torn_file(incidents, tmp_path, monkeypatch):
    def full(_descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(DiskFull):
        add(incidents)
    assert list((tmp_path / "incidents").glob("*.json")) == []
