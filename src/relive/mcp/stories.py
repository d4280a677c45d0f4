"""An incident in pieces that fit an agent's context: what failed first, then frames and timeline by pages."""

from __future__ import annotations

from pydantic import Field

from relive.incidents.report.condensed import condensed
from relive.incidents.report.detail import Account
from relive.incidents.report.last_good import Contrast
from relive.incidents.report.proxied import Proxied
from relive.incidents.report.shown import shorten
from relive.incidents.report.timeline import Row, folded, near_failure
from relive.incidents.report.words import status_text
from relive.model.failure import Frame, Link
from relive.model.outcome import Stack
from relive.model.quantities import duration
from relive.operations.incidents import IncidentPage
from relive.operations.operation import Result

__all__ = [
    "FrameView",
    "Frames",
    "IncidentLines",
    "RowView",
    "Story",
    "TimelinePage",
    "frames_of",
    "lines_of",
    "story_of",
    "timeline_of",
]

_LOG_LINES = 20
_BODY = 4000  # [characters]
_ROWS = 100  # of a timeline, unless all are asked for


class FrameView(Result):
    """A frame; ``source``: the line that ran; ``of``: the exception whose traceback it stands in."""

    file: str
    line: int
    function: str
    own: bool = Field(description="It is the service's own code, not a library's")
    source: str
    locals: dict[str, str]
    of: str


class RowView(Result):
    """One thing that happened, or several alike; times in milliseconds from the start of the request."""

    at_ms: float
    took_ms: float | None
    lane: int
    kind: str
    what: str
    result: str
    failed: bool


class DifferenceView(Result):
    """A step of the request that failed beside the one that went well; "not asked" where it made none."""

    what: str
    now: str
    then: str


class Story(Result):
    """What failed, in short."""

    number: int
    service: str
    kind: str
    summary: str
    exception: str | None = Field(description="What was raised, with its message")
    chain: list[str] = Field(description="The exceptions behind it, the nearest first")
    failing_frame: FrameView | None = Field(description="The innermost frame of the service's own code")
    request: str | None = Field(description="Method and target of the request that failed")
    request_body: str | None
    answer: str | None = Field(description="Status of the answer, and its body, cut where it is long")
    printed: list[str] = Field(description="What the service wrote during the request: STREAM: LINE")
    messages: list[str] = Field(
        description="What clients without HTTP/1 and the service last said to each other, the oldest first"
    )
    last_good: str | None = Field(description="The last request to the same route that went well")
    differs: list[DifferenceView] = Field(description="What was otherwise then, what failed first")
    unrecorded: list[str] = Field(
        description="Servers that it was connected to and nobody recorded: a replay lacks them"
    )
    calls: list[RowView] = Field(description="What it asked others for: what failed, then the slowest")
    seen_wall_ns: int
    times: int
    before: str | None = Field(description="The commit before the failure, from which it is replayed")
    at: str | None = Field(description="The commit at the moment of failure")
    frames: int = Field(description="How many frames there are: incident_frames")
    timeline_rows: int = Field(description="How many rows the timeline has: incident_timeline")
    read_before: list[str] = Field(description="What the request read, and who had written it last")
    stack: Stack | None = Field(description="As the service printed it, where no frames were kept")
    log_tail: list[str]
    notes: list[str]
    ask_next: list[str] = Field(description="Tools that tell more, as they are called")


class IncidentLine(Result):
    """An incident in a list: enough to choose one, and the commits that other tools ask for."""

    number: int
    service: str
    kind: str
    summary: str
    exception: str | None = Field(description="What was raised, in short")
    request: int | None = Field(description="Number of the request that failed, in its recording")
    times: int
    seen_wall_ns: int
    last_seen_wall_ns: int
    before: str | None = Field(description="The commit before the failure, from which it is replayed")
    at: str | None = Field(description="The commit at the moment of failure")


class IncidentLines(Result):
    """A page of incidents, newest first."""

    items: list[IncidentLine]
    next: str | None


class Frames(Result):
    """A page of frames, innermost first."""

    items: list[FrameView]
    next: int | None


class TimelinePage(Result):
    """A page of the timeline."""

    items: list[RowView]
    next: int | None


def lines_of(page: IncidentPage) -> IncidentLines:
    """The page without what only Relive itself works with; `incident` tells more of one."""
    return IncidentLines(
        items=[
            IncidentLine(
                number=one.number,
                service=one.service,
                kind=one.sighting.kind.value,
                summary=one.sighting.summary,
                exception=one.exception or None,
                request=one.sighting.request,
                times=one.times,
                seen_wall_ns=one.sighting.seen_wall_ns,
                last_seen_wall_ns=one.last_seen_wall_ns,
                before=one.before,
                at=one.at,
            )
            for one in page.items
        ],
        next=page.next,
    )


def story_of(account: Account) -> Story:
    """What failed."""
    incident, package = account.incident, account.package
    sighting = incident.sighting
    request = package.request if package is not None else None
    failing = package.failing_frame() if package is not None else None
    target = f"{request.method} {request.target}" if request is not None else _proxied(account)
    return Story(
        number=incident.number,
        service=incident.service,
        kind=sighting.kind.value,
        summary=sighting.summary,
        exception=f"{package.type}: {package.text}" if package is not None else None,
        chain=[f"{link.type}: {link.text}" for link in package.chain[1:]] if package is not None else [],
        failing_frame=_frame(failing, package.chain[0])
        if package is not None and failing is not None
        else None,
        request=target,
        request_body=request.body if request is not None else None,
        answer=_answer(account.proxied) if account.proxied is not None else None,
        printed=[f"{one.stream}: {line}" for one in account.printed for line in one.lines[-_LOG_LINES:]],
        messages=[
            f"connection {one.connection}, {'client' if one.by_client else 'service'}: {one.body.words()}"
            for one in account.messages
        ],
        last_good=_last_good(account.contrast) if account.contrast is not None else None,
        differs=_differs(account.contrast) if account.contrast is not None else [],
        unrecorded=[one.words for one in account.unrecorded],
        calls=[_row(row) for row in account.calls],
        seen_wall_ns=sighting.seen_wall_ns,
        times=incident.times,
        before=incident.before,
        at=incident.at,
        frames=sum(len(link.frames) for link in package.chain) if package is not None else 0,
        timeline_rows=len(account.timeline.rows) if account.timeline is not None else 0,
        read_before=[
            f"{origin.name}: {write.what} by request {write.request or '-'}, thread {write.thread}, "
            f"{write.before_ns / 1e6:.1f} ms before: {write.result}"
            for origin in account.origins
            for write in origin.last
        ],
        stack=account.stack if package is None else None,
        log_tail=incident.log_tail[-_LOG_LINES:] if package is None and not account.printed else [],
        notes=account.notes,
        ask_next=_ask_next(account),
    )


def _proxied(account: Account) -> str | None:
    return f"{account.proxied.method} {account.proxied.target}" if account.proxied is not None else None


def _answer(proxied: Proxied) -> str | None:
    if proxied.status is None:
        return None
    body = proxied.answer_body
    return f"{status_text(proxied.status)}{'' if body.is_empty else f': {shorten(body.words(), _BODY)}'}"


def _last_good(found: Contrast) -> str:
    return f"request {found.request} ({found.target}), {duration(found.before_ns / 1000)} before it"


def _differs(found: Contrast) -> list[DifferenceView]:
    return [DifferenceView(what=one.what, now=one.now, then=one.then) for one in found.differences]


def _ask_next(account: Account) -> list[str]:
    """Those tools that tell more; a command of the shell where no tool does it; a sentence where neither does."""
    number = account.incident.number
    asked = [f"incident_frames(number={number})"] if account.package is not None else []
    asked += [f"incident_timeline(number={number})"] if account.timeline is not None else []
    tools = {
        f"relive replay {number}": f"replay(what='{number}')",
        f"relive reproduce {number}": f"reproduce(incident='{number}')",
        f"relive bisect --replay {number}": f"bisect(replay={number})",
        f"relive why {number}": f"why(incident={number})",
        f"relive debug {number} --at-request": f"debug(number={number}, at_request=true, command=['n', 'p ...'])",
    }
    # What looks at others from outside has the rights of the host.
    if account.incident.sighting.throw is not None:
        tools[f"relive debug {number}"] = f"debug(number={number}, command=['where', 'p ...'])"
    for step in account.next_steps:
        asked.append(
            f"{tools.get(step.command, f'`{step.command}`')}: {step.why}" if step.command else step.why
        )
    return asked


def frames_of(account: Account, after: int, limit: int, *, own: bool) -> Frames:
    """A page of frames, those of the exception that escaped first, each chain innermost first."""
    package = account.package
    if package is None:
        return Frames(items=[], next=None)
    every = [
        (frame, link) for link in package.chain for frame in reversed(link.frames) if frame.own or not own
    ]
    return Frames(
        items=[_frame(frame, link) for frame, link in every[after : after + limit]],
        next=after + limit if len(every) > after + limit else None,
    )


def _frame(frame: Frame, link: Link) -> FrameView:
    source = ""
    if frame.source is not None and 0 <= frame.line - frame.source.first < len(frame.source.lines):
        source = frame.source.lines[frame.line - frame.source.first]
    return FrameView(
        file=frame.file,
        line=frame.line,
        function=frame.function,
        own=frame.own,
        source=source,
        locals=frame.locals,
        of=link.type,
    )


def timeline_of(account: Account, after: int, limit: int, *, everything: bool) -> TimelinePage:
    """A page of the timeline; without ``everything`` what repeats is aggregated and what is far from the request left out.

    Then it has at most 100 rows, and what failed is always among them.
    """
    if account.timeline is None:
        return TimelinePage(items=[], next=None)
    rows = account.timeline.rows
    if not everything:
        rows = condensed(folded(near_failure(rows)), _ROWS)
    return TimelinePage(
        items=[_row(row) for row in rows[after : after + limit]],
        next=after + limit if len(rows) > after + limit else None,
    )


def _row(row: Row) -> RowView:
    return RowView(
        at_ms=row.at_ns / 1e6,
        took_ms=row.took_ns / 1e6 if row.took_ns is not None else None,
        lane=row.lane,
        kind=row.label,
        what=row.what,
        result=row.result,
        failed=row.failed,
    )
