"""What those may read who may not see what a process had in memory and said: no locals, no log lines, no bodies, nothing that was
answered, no parameters. What failed and where, when, and what was asked of whom is left.
"""

from __future__ import annotations

from typing import Any, TypeVar

from relive.incidents.report.body import ReportBody
from relive.incidents.report.detail import Account
from relive.incidents.report.last_good import Contrast
from relive.incidents.report.proxied import Proxied
from relive.incidents.report.timeline import Row, Timeline
from relive.model.failure import ErrorPackage, Frame
from relive.model.incident import FailureKind, IncidentFacts, Sighting
from relive.recording.events import EventKind

__all__ = ["account_without_memory", "facts_without_memory", "request_without_bodies"]

AnyIncident = TypeVar("AnyIncident", bound=IncidentFacts)

# Of what was asked in a call; parameters, bodies and all words of a command behind its name stay out.
_ASKED = frozenset(
    {*("system", "database", "statement", "server", "method", "url", "bucket", "key", "path"), "transaction"}
)
_KEPT = frozenset(
    {"asked", "lane", "thread", "within_a_call", "method", "server", "status", "request", "connection"}
)
_TOLD = frozenset({EventKind.REQUEST_STARTED, EventKind.HTTP_CALL, EventKind.S3_CALL})
_WHOLE = frozenset({EventKind.CLOCK, EventKind.RANDOM, EventKind.COMMIT_TAKEN})


def account_without_memory(account: Account) -> Account:
    """All that is known of an incident, as far as they may read it."""
    return account.model_copy(
        update={
            "incident": facts_without_memory(account.incident.model_copy(update={"log_tail": []})),
            "package": _package(account.package) if account.package is not None else None,
            "stack": account.stack.model_copy(update={"text": []}) if account.stack is not None else None,
            "timeline": _timeline(account.timeline) if account.timeline is not None else None,
            "proxied": request_without_bodies(account.proxied) if account.proxied is not None else None,
            "printed": [one.model_copy(update={"lines": []}) for one in account.printed],
            "messages": [one.model_copy(update={"body": _size(one.body)}) for one in account.messages],
            "calls": [_row(row) for row in account.calls],
            "contrast": _contrast(account.contrast) if account.contrast is not None else None,
            "origins": [],
        }
    )


def facts_without_memory(incident: AnyIncident) -> AnyIncident:
    """An incident whose summary is no line of a log."""
    latest = incident.latest
    if latest is not None:
        latest = latest.model_copy(update={"sighting": _sighting(latest.sighting)})
    return incident.model_copy(update={"sighting": _sighting(incident.sighting), "latest": latest})


def _sighting(sighting: Sighting) -> Sighting:
    if sighting.kind is not FailureKind.LOG:
        return sighting
    return sighting.model_copy(update={"summary": "its output matched a pattern that stands for a failure"})


def request_without_bodies(proxied: Proxied) -> Proxied:
    """A request and its answer, of whose bodies only the sizes are told."""
    return proxied.model_copy(update={"body": _size(proxied.body), "answer_body": _size(proxied.answer_body)})


def _size(body: ReportBody) -> ReportBody:
    return ReportBody.of(b"", size=body.size)


def _package(package: ErrorPackage) -> ErrorPackage:
    chain = [
        link.model_copy(update={"frames": [_frame(frame) for frame in link.frames]}) for link in package.chain
    ]
    request = package.request
    if request is not None and request.body is not None:
        missing = request.body_cut + len(request.body.encode())
        request = request.model_copy(update={"body": None, "body_cut": missing})
    return package.model_copy(update={"chain": chain, "request": request, "environment": {}})


def _frame(frame: Frame) -> Frame:
    return frame.model_copy(update={"locals": {}, "locals_cut": frame.locals_cut + len(frame.locals)})


def _timeline(timeline: Timeline) -> Timeline:
    return timeline.model_copy(update={"rows": [_row(row) for row in timeline.rows]})


def _contrast(found: Contrast) -> Contrast:
    """Only what the proxy saw, and answers of HTTP, which are a status: of other calls not that they differed, either."""
    allowed = [one for one in found.differences if one.kind in _TOLD]
    return found.model_copy(update={"differences": allowed})


def _row(row: Row) -> Row:
    if row.kind in _WHOLE:
        return row
    details = {
        name: _asked(value) if name == "asked" else value
        for name, value in row.details.items()
        if name in _KEPT
    }
    what, result = row.what, row.result
    if row.kind is EventKind.LOG_RECORD:
        what = str(row.details.get("logger", "")) or "log"
    elif row.kind in (EventKind.REDIS_COMMAND, EventKind.ENVIRONMENT_READ, EventKind.SUBPROCESS):
        what = what.split(" ", 1)[0]
    if row.kind in (
        EventKind.REDIS_COMMAND,
        EventKind.QUERY,
        EventKind.LOG_RECORD,
        EventKind.ENVIRONMENT_READ,
    ):
        result = ""
    return row.model_copy(update={"what": what, "result": result, "details": details})


def _asked(asked: Any) -> Any:
    return (
        {name: value for name, value in asked.items() if name in _ASKED} if isinstance(asked, dict) else None
    )
