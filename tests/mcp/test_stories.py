"""What an agent reads of incidents is enough to choose one, and small: twenty are in one answer."""

from __future__ import annotations

from relive.mcp.stories import lines_of
from relive.model.commit import CommitId
from relive.model.incident import FailureKind, Sighting
from relive.operations.incidents import IncidentLine, IncidentPage


def test_a_list_tells_what_chooses_an_incident_and_nothing_that_only_relive_works_with():
    summary = "KeyError: 757 in pay (ledger.py:127), request 4 (POST /payments)"
    sighting = Sighting(
        kind=FailureKind.EXCEPTION,
        fingerprint="exception 3e571d4787c20ff6",
        summary=summary,
        seen_wall_ns=1795969499087573821,
        request=4,
    )
    incident = IncidentLine(
        number=17,
        service="payments",
        life="20261129T162243-f0db63",
        sighting=sighting,
        before=CommitId("b" * 64),
        at=CommitId("a" * 64),
        times=3,
        last_seen_wall_ns=1795969499087573822,
        log_end=1309,
        exception="KeyError: 757",
    )
    found = lines_of(IncidentPage(items=[incident], next="cursor"))
    (line,) = found.items
    assert (line.number, line.summary, line.exception, line.request) == (17, summary, "KeyError: 757", 4)
    assert (line.before, line.at, line.times, found.next) == ("b" * 64, "a" * 64, 3, "cursor")
    assert len(line.model_dump_json()) < 600 < len(incident.model_dump_json())
