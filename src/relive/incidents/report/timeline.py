"""What one request did and when: events turned into rows of a table, decided from values alone.

Events of the recorder inside the service, the request as the proxy saw it, calls as the border saw them; all read one monotonic
clock. The *start*
of a timeline is the first that is known of the request. A call's event is written when it has ended, so it began so much
earlier as it took.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, Literal

from relive.incidents.report.body import ReportBody
from relive.incidents.report.content_coding import coding_of, decoded
from relive.incidents.report.proxied import Proxied
from relive.incidents.report.rows import FetchedRows, fetched
from relive.incidents.report.words import CALLS, READINGS, error_text, phrase, status_text
from relive.model.value import Value
from relive.recording.events import WITHIN_A_CALL, Event, EventKind, is_within_a_call
from relive.recording.exchanges import ExchangeEnd

__all__ = ["Row", "Timeline", "folded", "make_timeline", "near_failure"]

_HANDLING = frozenset({EventKind.HANDLING_STARTED, EventKind.HANDLING_BODY, EventKind.HANDLING_ENDED})
_UNTOLD = _HANDLING | {EventKind.ROWS}
_ROWS_KEPT = 100  # rows of a query that its details hold
# Fields of an event that are told in other ways.
_PLACED = frozenset(
    {"own_seq", "thread", "lane", "pid", "asked", "answer", "error", "ns", "body_ns", "file", "bytes", "cut"}
)
_ENDINGS = {
    ExchangeEnd.ABANDONED: "the client went away",
    ExchangeEnd.BROKEN: "connection ended without an answer",
    ExchangeEnd.OPEN: "no answer recorded",
    ExchangeEnd.LOST: "its end was not recorded",
}


class Row(Value):
    """One line of a timeline.

    Attributes:
        source: whose event it is; seq: the event's number there (inside: in its process; egress: of the call's first byte).
        at_ns: when it began, from the start of the timeline; took_ns: how long it took, None for what takes no time.
        lane: thread or task within the request, or outside of it, each counted from 1; 0 is the request as the proxy saw it.
        outside: something of the same process that worked for no request.
        count: how many events this row stands for (see ``folded`` and ``condensed.py``).
        details: asked, answer, error, body, rows (the first hundred; ``rows_fetched`` counts all), and other fields of
            the event, as far as it has them.
    """

    source: Literal["inside", "proxy", "egress"]
    seq: int
    kind: EventKind
    at_ns: int
    took_ns: int | None = None
    lane: int = 0
    pid: int | None = None
    what: str
    result: str
    failed: bool = False
    outside: bool = False
    count: int = 1
    details: dict[str, Any] = {}

    @property
    def label(self) -> str:
        """The kind in a word for people."""
        if self.count > 1 and self.kind in READINGS:
            return "readings"
        return _LABELS.get(self.kind, self.kind.value)


_LABELS = {
    EventKind.REQUEST_STARTED: "request",
    EventKind.HANDLING_STARTED: "handler",
    EventKind.HTTP_CALL: "http",
    EventKind.REDIS_COMMAND: "redis",
    EventKind.S3_CALL: "s3",
    EventKind.FILE_READ: "file",
    EventKind.ENVIRONMENT_READ: "environment",
    EventKind.LOG_RECORD: "log",
    EventKind.COMMIT_TAKEN: "commit",
    EventKind.DIALOGUE_OPENED: "connect",
    EventKind.DIALOGUE_UP: "bytes",
    EventKind.NAME_LOOKUP: "name",
}


class Timeline(Value):
    """The rows in the order in which they began.

    Attributes:
        began_wall_ns: when the request began.
        took_ns: until its answer was whole, or until the last that is known of it.
    """

    began_wall_ns: int
    took_ns: int
    rows: list[Row]


def make_timeline(
    inside: Sequence[Event],
    proxied: Proxied | None = None,
    commits: Sequence[Event] = (),
    egress: Sequence[Event] = (),
) -> Timeline | None:
    """The timeline of one request; None when nothing is known of it.

    Args:
        inside: events of the request, and those of its process outside requests (``request`` 0) meanwhile, in any order; their
            fields as JSON has them (see ``json_events``).
        commits: ``commit-taken`` events of the proxy's recording during the request, ``commit`` an id; None of one that is gone.
        egress: calls at the border meanwhile, see ``egress.py``.
    """
    start = _start(inside, proxied)
    if start is None:
        return None
    mono_ns, wall_ns = start
    rows = [*_proxy_rows(proxied, commits, mono_ns), *_inside_rows(inside, mono_ns)]
    rows += [_call_row(event, mono_ns) for event in egress]
    rows.sort(key=lambda row: (row.at_ns, row.source != "proxy", row.seq))
    last = max((row.at_ns + (row.took_ns or 0) for row in rows if not row.outside), default=0)
    return Timeline(began_wall_ns=wall_ns, took_ns=max(0, last), rows=_with_counted_lanes(rows))


def _with_counted_lanes(rows: Iterable[Row]) -> list[Row]:
    """Rows with lanes counted from 1 as they appear; events bear the recorder's, which are hashes of how each was begun."""
    counted: dict[bool, dict[tuple[int | None, int], int]] = {False: {}, True: {}}
    shown = []
    for row in rows:
        known = counted[row.outside]
        lane = known.setdefault((row.pid, row.lane), len(known) + 1) if row.lane else 0
        shown.append(row.model_copy(update={"lane": lane}))
    return shown


def folded(rows: Iterable[Row]) -> list[Row]:
    """The rows with neighbouring readings of the clock, or of chance, in one: ``time.time × 4``.

    Neighbours are of one lane with nothing of that lane between them; details have ``readings``: [what, value].
    """
    shown: list[Row] = []
    last: dict[tuple[int | None, int], list[Row]] = {}
    runs: list[list[Row]] = []
    for row in rows:
        lane = (row.pid, row.lane)
        run = last.get(lane)
        if row.kind in READINGS and run is not None and run[0].kind in READINGS:
            run.append(row)
            continue
        last[lane] = [row]
        runs.append(last[lane])
    for run in runs:
        shown.append(run[0] if len(run) == 1 else _folded_run(run))
    return shown


def near_failure(rows: Sequence[Row], most: int = 6) -> list[Row]:
    """The rows without what the process did outside of the request, but for what failed and the last few before the last failure.

    Args:
        most: how many rows of outside that did not fail are kept. Where nothing failed, these are the last ones at all.
    """
    moment = max((row.at_ns for row in rows if row.kind is EventKind.FAILURE), default=None)
    around = [
        row for row in rows if row.outside and not row.failed and (moment is None or row.at_ns <= moment)
    ]
    kept = {id(row) for row in [*around[-most:], *(row for row in rows if row.failed)]}
    return [row for row in rows if not row.outside or id(row) in kept]


def _folded_run(run: list[Row]) -> Row:
    names = [row.what for row in run]
    parts = [
        f"{name} × {names.count(name)}" if names.count(name) > 1 else name for name in dict.fromkeys(names)
    ]
    result = f"{run[0].result} … {run[-1].result}" if len(parts) == 1 else ""
    details = {"readings": [[row.what, row.details.get("value")] for row in run]}
    return run[0].model_copy(
        update={"what": ", ".join(parts), "result": result, "count": len(run), "details": details}
    )


def _start(inside: Sequence[Event], proxied: Proxied | None) -> tuple[int, int] | None:
    """(monotonic, wall) in nanoseconds."""
    known = [(proxied.began_mono_ns, proxied.began_wall_ns)] if proxied is not None else []
    own = [event for event in inside if event.request]
    handling = [event for event in own if event.kind is EventKind.HANDLING_STARTED]
    known += [(event.mono_ns, event.wall_ns) for event in handling]
    if not known:
        known = [(event.mono_ns - _took(event), event.wall_ns - _took(event)) for event in own or inside]
    return min(known, default=None)


def _took(event: Event) -> int:
    """How long it took, the reading of its answer's body included."""
    took = _number(event, "ns") + _number(event, "body_ns")
    return took if 0 <= took <= event.mono_ns else 0


def _number(event: Event, name: str) -> int:
    value = event.fields.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


# -- the proxy's ---------------------------------------------------------------------------------------------------------


def _proxy_rows(proxied: Proxied | None, commits: Sequence[Event], start_ns: int) -> Iterator[Row]:
    if proxied is None:
        return
    ended = proxied.ended_mono_ns
    status = status_text(proxied.status) if proxied.grpc is None else str(proxied.grpc)
    ending = _ENDINGS.get(proxied.ended, "")
    yield Row(
        source="proxy",
        seq=proxied.sequence,
        kind=EventKind.REQUEST_STARTED,
        at_ns=proxied.began_mono_ns - start_ns,
        took_ns=None if ended is None else ended - proxied.began_mono_ns,
        what=f"{proxied.method} {proxied.target}",
        result=", ".join(filter(None, [status, ending])),
        failed=bool(ending)
        or (proxied.status or 0) >= 500
        or (proxied.grpc is not None and proxied.grpc.is_failure),
        details={"client": proxied.client, "request": proxied.number, "connection": proxied.connection},
    )
    for event in commits:
        yield Row(
            source="proxy",
            seq=event.seq,
            kind=EventKind.COMMIT_TAKEN,
            at_ns=event.mono_ns - start_ns,
            what=f"commit {str(event.fields['commit'])[:10]}"
            if event.fields["commit"]
            else "commit, not kept",
            result="",
            details=dict(event.fields),
        )


# -- from inside ---------------------------------------------------------------------------------------------------------


def _inside_rows(inside: Sequence[Event], start_ns: int) -> Iterator[Row]:
    later = _rows_by_query(inside)
    yield from _handlings(inside, start_ns)
    for event in inside:
        if event.kind in _UNTOLD:
            continue
        own = _number(event, "pid"), _number(event, "own_seq")
        yield _inside_row(event, later.get(own, []), start_ns)


def _rows_by_query(inside: Sequence[Event]) -> Mapping[tuple[int, int], list[Event]]:
    found: dict[tuple[int, int], list[Event]] = {}
    for event in inside:
        if event.kind is EventKind.ROWS:
            found.setdefault((_number(event, "pid"), _number(event, "query")), []).append(event)
    return found


def _inside_row(event: Event, later: list[Event], start_ns: int) -> Row:
    fields = dict(event.fields)
    details = _details(event)
    rows = fetched(event, later) if event.kind is EventKind.QUERY else None
    if rows is not None:
        fields["rows_fetched"] = rows.total
        details |= _rows_details(details, rows)
    words = phrase(event.kind, fields)
    return Row(
        source="inside",
        seq=_number(event, "own_seq") or event.seq,
        kind=event.kind,
        at_ns=event.mono_ns - _took(event) - start_ns,
        took_ns=_took(event) if event.kind in CALLS and "ns" in event.fields else None,
        lane=_number(event, "lane") & ~WITHIN_A_CALL,
        pid=_number(event, "pid") or None,
        what=words.what,
        result=words.result,
        failed=words.failed,
        outside=event.request == 0,
        details=details,
    )


def _call_row(event: Event, start_ns: int) -> Row:
    """A call at the border."""
    words = phrase(event.kind, event.fields)
    return Row(
        source="egress",
        seq=event.seq,
        kind=event.kind,
        at_ns=event.mono_ns - _took(event) - start_ns,
        took_ns=_took(event),
        what=words.what,
        result=words.result,
        failed=words.failed,
        details=_details(event) | {"connection": event.connection},
    )


def _rows_details(details: dict[str, Any], rows: FetchedRows) -> dict[str, Any]:
    answer = details.get("answer")
    kept = rows.rows[:_ROWS_KEPT]
    found: dict[str, Any] = {"rows": kept, "rows_fetched": rows.total}
    if isinstance(answer, dict):
        found["answer"] = {name: value for name, value in answer.items() if name != "rows"}
    return found


def _details(event: Event) -> dict[str, Any]:
    fields = event.fields
    details: dict[str, Any] = {name: fields[name] for name in ("asked", "answer", "error") if name in fields}
    details |= {name: value for name, value in fields.items() if name not in _PLACED}
    thread = _number(event, "thread")
    if thread:
        details["thread"] = thread
    if is_within_a_call(event):
        details["within_a_call"] = True
    file = fields.get("file")
    if event.kind is not EventKind.FAILURE and (event.data or isinstance(file, str)):
        body = _body(event, file if isinstance(file, str) else None)
        details["body"] = body.model_dump(mode="json", exclude_none=True)
    return details


def _body(event: Event, file: str | None) -> ReportBody:
    plain = _readable(event)
    size = _number(event, "bytes")
    if plain != event.data:  # ``bytes`` counts it as it was packed
        size = len(plain) + _number(event, "cut")
    return ReportBody.of(plain, size=size, file=file)


def _readable(event: Event) -> bytes:
    """The event's data, without the content coding that the answer's headers tell, where that can be taken off."""
    answer = event.fields.get("answer", event.fields)
    headers = answer.get("headers") if isinstance(answer, dict) else None
    pairs = (
        [pair for pair in headers if isinstance(pair, list) and len(pair) == 2]
        if isinstance(headers, list)
        else []
    )
    coding = coding_of([(str(name), str(value)) for name, value in pairs])
    if event.fields.get("decoded") or event.kind is EventKind.HANDLING_STARTED:
        return event.data
    plain = decoded(event.data, coding)
    return event.data if plain is None else plain


def _handlings(inside: Sequence[Event], start_ns: int) -> Iterator[Row]:
    """One row for each beginning of a handler, with its body and its end where they are known."""
    events = [event for event in inside if event.kind in _HANDLING]
    events.sort(key=lambda event: (_number(event, "pid"), event.request, event.mono_ns))
    for _, group in groupby(events, key=lambda event: (_number(event, "pid"), event.request)):
        # Of bodies the last: it is told again when more of it was read.
        of_kind = {event.kind: event for event in group}
        begun, ended = of_kind.get(EventKind.HANDLING_STARTED), of_kind.get(EventKind.HANDLING_ENDED)
        first = begun or ended
        if first is not None:
            yield _handling(first, of_kind.get(EventKind.HANDLING_BODY), ended, start_ns)


def _handling(begun: Event, body: Event | None, ended: Event | None, start_ns: int) -> Row:
    fields: dict[str, Any] = dict(begun.fields)
    took: int | None = None
    result, failed = "no end recorded", True
    if ended is not None:
        fields |= {name: ended.fields[name] for name in ("status", "error") if name in ended.fields}
        took = max(0, ended.mono_ns - begun.mono_ns) if ended is not begun else _took(ended)
        words = phrase(EventKind.HANDLING_ENDED, fields)
        status = ended.fields.get("status")
        result, failed = words.result, words.failed or (isinstance(status, int) and status >= 500)
        if "error" in ended.fields and isinstance(status, int):
            result = f"{status_text(status)}, {error_text(ended.fields['error'])}"
        if ended.fields.get("left"):
            result = f"{result}, answer left open"
    details = (_details(body) if body is not None else {}) | _details(begun)
    if ended is not None and ended is not begun:
        details["answer"] = _details(ended)
    at_ns = begun.mono_ns - start_ns - (took or 0 if begun is ended else 0)
    return Row(
        source="inside",
        seq=_number(begun, "own_seq") or begun.seq,
        kind=EventKind.HANDLING_STARTED,
        at_ns=at_ns,
        took_ns=took,
        lane=_number(begun, "lane"),
        pid=_number(begun, "pid") or None,
        what=phrase(EventKind.HANDLING_STARTED, fields).what,
        result=result,
        failed=failed,
        details=details,
    )
