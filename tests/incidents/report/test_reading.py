"""Who may not read memory reads no logs, bodies, answers, parameters and locals of an incident."""

from __future__ import annotations

import json

from relive.incidents.report.body import ReportBody
from relive.incidents.report.detail import Account
from relive.incidents.report.last_good import Contrast, Difference
from relive.incidents.report.printed import Printed
from relive.incidents.report.timeline import Row, Timeline
from relive.model.incident import FailureKind
from relive.operations.incident_detail import Rendering, rendered
from relive.operations.redaction import account_without_memory, facts_without_memory
from relive.recording.events import EventKind

SAID = "what-was-said-17"


def row(kind: EventKind, what: str, **details: object) -> Row:
    result = "200 OK" if kind is EventKind.HTTP_CALL else SAID
    return Row(source="inside", seq=1, kind=kind, at_ns=0, what=what, result=result, details=details)


def full(account: Account) -> Account:
    """The account with something said in each place."""
    assert account.package is not None
    assert account.proxied is not None
    assert account.timeline is not None
    rows = [
        row(EventKind.LOG_RECORD, SAID, logger="shop", text=SAID),
        row(
            EventKind.REDIS_COMMAND,
            f"SET user {SAID}",
            asked={"command": ["SET", "user", SAID], "server": "r"},
        ),
        row(
            EventKind.QUERY, "SELECT 1", asked={"statement": "SELECT 1", "parameters": [SAID]}, rows=[[SAID]]
        ),
        row(
            EventKind.HTTP_CALL, "GET /x", asked={"url": "/x", "body": SAID}, answer={"body": SAID}, body=SAID
        ),
        row(EventKind.ENVIRONMENT_READ, f"HOME {SAID}", name="HOME", value=SAID),
    ]
    link = account.package.chain[0]
    frame = link.frames[0].model_copy(update={"locals": {"x": SAID}})
    package = account.package.model_copy(
        update={"chain": [link.model_copy(update={"frames": [frame]})], "environment": {"HOME": SAID}}
    )
    if package.request is not None:
        package = package.model_copy(
            update={"request": package.request.model_copy(update={"body": SAID, "body_cut": 0})}
        )
    body = ReportBody.of(SAID.encode())
    return account.model_copy(
        update={
            "package": package,
            "incident": account.incident.model_copy(update={"log_tail": [SAID]}),
            "proxied": account.proxied.model_copy(update={"body": body, "answer_body": body}),
            "timeline": account.timeline.model_copy(update={"rows": rows}),
            "printed": [Printed(stream="stderr", lines=[SAID])],
            "calls": rows[1:4],
            "contrast": Contrast(
                request=1,
                target="/x",
                before_ns=1,
                differences=[
                    Difference(kind=EventKind.REDIS_COMMAND, what=f"GET {SAID}", now=SAID, then=SAID),
                    Difference(kind=EventKind.QUERY, what="SELECT 1", now=SAID, then=SAID),
                    Difference(kind=EventKind.HTTP_CALL, what="GET /x", now="503", then="200"),
                ],
            ),
        }
    )


def test_nothing_that_was_said_is_left(told) -> None:
    account = full(told())
    assert SAID in account.model_dump_json()
    found = account_without_memory(account)
    assert SAID not in found.model_dump_json()
    for form in Rendering:
        assert SAID not in rendered(found, form)
    assert isinstance(found.timeline, Timeline)
    assert [one.what for one in found.timeline.rows] == ["shop", "SET", "SELECT 1", "GET /x", "HOME"]
    assert found.timeline.rows[2].details == {"asked": {"statement": "SELECT 1"}}
    assert found.package is not None
    assert found.package.chain[0].frames[0].locals_cut >= 1
    assert found.proxied is not None
    assert found.proxied.answer_body.size == len(SAID)


def test_a_summary_that_is_a_line_of_a_log(told) -> None:
    incident = told().incident
    line = incident.sighting.model_copy(update={"kind": FailureKind.LOG, "summary": f"matched: {SAID}"})
    found = facts_without_memory(incident.model_copy(update={"sighting": line}))
    assert SAID not in json.dumps(found.model_dump(mode="json"))
    assert facts_without_memory(incident).sighting == incident.sighting
