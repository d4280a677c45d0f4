"""An incident for people: what failed and where, with locals; what its request did; what belongs to it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from relive.cli.stacks import stack_lines
from relive.cli.terminal import Terminal
from relive.incidents.report.condensed import condensed
from relive.incidents.report.detail import Account, IncidentCommit
from relive.incidents.report.lanes import Lane, lane_of, lanes_from_above
from relive.incidents.report.origins import Write
from relive.incidents.report.shown import one_line, shorten
from relive.incidents.report.timeline import Row, Timeline, folded, near_failure
from relive.incidents.report.words import status_text
from relive.model.capsule import CaptureWay, EgressWay
from relive.model.failure import ErrorPackage, Frame, Link, Where
from relive.model.quantities import duration, size, when
from relive.model.stack import find_stacks
from relive.model.text import printable

__all__ = ["show_account"]

_OWN_FRAMES = 4  # frames of the service's own code that are shown without --all
_LOCALS = 12  # locals of a frame
_ROWS = 60  # rows of the timeline
_SHORT = 15  # rows of a timeline that show all calls at a glance
_BODY, _BODY_LINES = 2000, 20  # [characters], lines of an answer's body
_CONTRASTED = 48  # [characters] of what came of a call
_STREAMS = {"stderr": "standard error", "stdout": "standard output"}
_LOG_LINES = 20
_LEAST_WHAT = 24  # [characters]
_RESULT_SHARE = 0.4  # of the room that the texts of a timeline have
_RELATIONS = {"cause": "Caused by", "context": "While handling", "group": "In the group"}


def show_account(terminal: Terminal, account: Account, *, everything: bool) -> None:
    """Show it.

    Args:
        everything: with the libraries' frames, all locals, every row and reading.
    """
    width = terminal.width
    package = account.package
    lines = [*_headline(account), *_answered(account)]
    if package is not None:
        lines += ["", *_exceptions(package, width, everything=everything)]
    elif account.stack is not None:
        lines += ["", "Stack:", *(printable(line) for line in stack_lines(account.stack))]
    lines += _messages(account, width)
    lines += _printed(account, everything=everything)
    terminal.answer(None, "\n".join(lines))
    _show_contrast(terminal, account)
    _show_calls(terminal, account)
    if account.timeline is not None and account.timeline.rows:
        _show_timeline(terminal, account.timeline, everything=everything)
    _show_origins(terminal, account)
    terminal.answer(None, "\n".join(_rest(account)))


# -- what failed ---------------------------------------------------------------------------------------------------------


def _headline(account: Account) -> Iterator[str]:
    incident, package = account.incident, account.package
    sighting = incident.sighting
    yield f"incident {incident.number} of {incident.service}: {one_line(sighting.summary)}"
    if package is not None:
        yield f"Raised:   {one_line(_named(package))}"
        frame = package.failing_frame()
        if frame is not None:
            how = (
                "caught, and logged"
                if package.where is Where.LOG
                else f"it escaped from the {package.where.value}"
            )
            yield f"Where:    {_place(frame, package)}; {how}"
        if package.request is not None:
            request = package.request
            yield f"Request:  {one_line(f'{request.method} {request.target}')}"
    kind = f"kind {sighting.kind.value}"
    yield f"Seen:     {when(sighting.seen_wall_ns)}, {incident.times} time{'s' * (incident.times != 1)}, {kind}"
    yield f"Before:   {incident.before or 'no commit'}{_gone(account, 'before')}"
    yield f"At:       {incident.at or 'no commit'}{_gone(account, 'at')}"
    if incident.latest is not None:
        latest = incident.latest
        yield f"Latest:   {when(latest.sighting.seen_wall_ns)}, before it {latest.before or 'no commit'}"
    if sighting.signal is not None:
        sent = f", sent {one_line(sighting.sender)}" if sighting.sender is not None else ""
        yield f"Signal:   {sighting.signal} {sighting.signal_code or ''}".rstrip() + sent
    if sighting.starting:
        yield "Moment:   while the service was starting: before it listened and was committed for the first time"
    if sighting.open_requests:
        yield f"Open:     requests {', '.join(map(str, sighting.open_requests))}"


def _answered(account: Account) -> Iterator[str]:
    """The failing answer, as the proxy saw it."""
    one = account.proxied
    if one is None:
        return
    ended = f" after {duration((one.ended_mono_ns - one.began_mono_ns) / 1000)}" if one.ended_mono_ns else ""
    if account.package is None or account.package.request is None:
        yield f"Request:  {one_line(f'{one.method} {one.target}')}"
    if one.status is None:
        return
    kind = dict(one.answer_headers).get("content-type", "")
    size = f", {one.answer_body.size} bytes{f' of {one_line(kind)}' if kind else ''}"
    status = status_text(one.status) if one.grpc is None else str(one.grpc)
    yield f"Answered: {status}{ended}{'' if one.answer_body.is_empty else size}"
    if not one.answer_body.is_empty:
        text = one.answer_body.words()
        lines = printable(shorten(text.rstrip(), _BODY)).splitlines()
        yield from (f"  {line}" for line in lines[:_BODY_LINES])
        if len(lines) > _BODY_LINES or len(text) > _BODY:
            yield "  … (--json has more of it)"


def _messages(account: Account, width: int) -> Iterator[str]:
    """What was last said on connections without HTTP/1."""
    if account.messages:
        yield "\nLast said by clients and service, until the failure was seen:"
    for one in account.messages:
        before = f"{duration(one.before_ns / 1000)} before"
        start = f"  {before:>18}  connection {one.connection}  {'>' if one.by_client else '<'} "
        yield start + shorten(one_line(one.body.words().rstrip()), max(_LEAST_WHAT, width - len(start)))
    for number in sorted({one.connection for one in account.messages if one.from_middle}):
        yield f"  Connection {number} stood before it was recorded: what was said on it until then is missing."


def _printed(account: Account, *, everything: bool) -> Iterator[str]:
    """What it wrote during the request; where that is not known the last lines before the incident was written down."""
    most = None if everything else _LOG_LINES
    for one in account.printed:
        lines = one.lines
        if account.package is not None and not everything:  # its frames say more than tracebacks in the log
            traced = {line for stack in find_stacks(lines) for line in stack.text}
            lines = [line for line in lines if line not in traced]
        if not lines:
            continue
        lines = lines[-most:] if most else lines
        yield f"\nOn its {_STREAMS.get(one.stream, one.stream)} during the request:"
        if len(lines) < len(one.lines) or one.left_out:
            yield "  …"
        yield from (f"  {printable(line)}" for line in lines)
    if not account.printed and account.package is None and account.stack is None:
        tail = account.incident.log_tail
        if tail:
            yield "\nLast lines of its standard error:"
            yield from (f"  {printable(line)}" for line in (tail[-most:] if most else tail))


def _named(package: ErrorPackage) -> str:
    return f"{_plain(package.type)}: {package.text}" if package.text else _plain(package.type)


def _plain(kind: str) -> str:
    return kind.removeprefix("builtins.")


def _gone(account: Account, role: str) -> str:
    facts = _commit(account.commits, role)
    return " (no longer in the store)" if facts is not None and facts.taken_wall_ns is None else ""


def _commit(commits: Sequence[IncidentCommit], role: str) -> IncidentCommit | None:
    return next((one for one in commits if one.role == role), None)


def _place(frame: Frame, package: ErrorPackage) -> str:
    return one_line(f"{package.short_path(frame.file)}:{frame.line} in {frame.function}")


# -- frames --------------------------------------------------------------------------------------------------------------


def _exceptions(package: ErrorPackage, width: int, *, everything: bool) -> Iterator[str]:
    for number, link in enumerate(package.chain):
        if number:
            words = _RELATIONS.get(link.relation.value if link.relation is not None else "", "Then")
            yield ""
            yield shorten(f"{words}: {one_line(f'{_plain(link.type)}: {link.text}')}", width)
        else:
            yield "Frames, innermost first:"
        yield from _frames(link, package, width, everything=everything)


def _frames(link: Link, package: ErrorPackage, width: int, *, everything: bool) -> Iterator[str]:
    has_own = any(frame.own for frame in link.frames)
    skipped = own = 0
    for frame in reversed(link.frames):
        is_shown = everything or ((frame.own or not has_own) and own < _OWN_FRAMES)
        if not is_shown:
            skipped += 1
            continue
        if skipped:
            yield _left_out(skipped)
            skipped = 0
        own += 1
        yield from _frame(frame, package, width, everything=everything)
    if skipped:
        yield _left_out(skipped)


def _left_out(count: int) -> str:
    return f"  … {count} frame{'s' * (count != 1)} of libraries or further out (--all)"


def _frame(frame: Frame, package: ErrorPackage, width: int, *, everything: bool) -> Iterator[str]:
    yield f"  {_place(frame, package)}"
    if frame.source is not None:
        at = frame.line - frame.source.first
        if 0 <= at < len(frame.source.lines):
            yield shorten(f"    > {one_line(frame.source.lines[at])}", width)
    names = list(frame.locals)
    shown = names if everything else names[:_LOCALS]
    longest = max((len(name) for name in shown), default=0)
    for name in shown:
        yield shorten(f"      {one_line(name):<{longest}} = {one_line(frame.locals[name])}", width)
    hidden = len(names) - len(shown)
    if hidden:
        yield f"      … {hidden} more locals (--all)"
    if frame.locals_cut:
        yield f"      … {frame.locals_cut} more locals were not kept"


# -- what is likely to blame ---------------------------------------------------------------------------------------------


def _show_contrast(terminal: Terminal, account: Account) -> None:
    """Beside the last request to the same route that went well."""
    found = account.contrast
    if found is None:
        return
    cells = [
        [one.what, shorten(one.now, _CONTRASTED), shorten(one.then, _CONTRASTED)] for one in found.differences
    ]
    place = f"request {found.request}, {duration(found.before_ns / 1000)} before it"
    terminal.answer(None, f"\nBeside the last request to its route that went well ({place}):")
    bad = {number for number, one in enumerate(found.differences) if one.failed}
    terminal.table(found.differences, ["what", "now", "then"], cells, "", bad=bad)
    if found.left_out:
        terminal.answer(None, f"… {found.left_out} more differences (--json)")


def _show_calls(terminal: Terminal, account: Account) -> None:
    """Where the timeline is long: the calls that failed, then the slowest."""
    timeline = account.timeline
    if timeline is None or not account.calls or len(timeline.rows) <= _SHORT:
        return
    columns = ["kind", "what", "result", "took"]
    cells = [_call_cells(row) for row in account.calls]
    _fit(cells, columns, terminal.width)
    terminal.answer(None, "\nCalls that failed, then the slowest:")
    bad = {number for number, row in enumerate(account.calls) if row.failed}
    terminal.table(account.calls, columns, cells, "", bad=bad)


def _call_cells(row: Row) -> list[str]:
    what = f"{row.what} (the last of {row.count})" if row.count > 1 else row.what
    return [row.label, what, row.result, duration(row.took_ns / 1000) if row.took_ns is not None else ""]


# -- the timeline --------------------------------------------------------------------------------------------------------


def _show_timeline(terminal: Terminal, timeline: Timeline, *, everything: bool) -> None:
    rows = timeline.rows if everything else folded(near_failure(timeline.rows))
    beside = 0 if everything else len(timeline.rows) - len(near_failure(timeline.rows))
    steps = len(rows)
    if not everything:
        rows = condensed(rows, _ROWS)
    has_lanes = len({(row.pid, row.lane) for row in rows if row.lane}) > 1
    columns = ["at ms", *(["lane"] if has_lanes else []), "kind", "what", "result", "took"]
    lanes = lanes_from_above(timeline.rows) if has_lanes else {}
    cells = [_cells(row, lanes) for row in rows]
    is_cut = _fit(cells, columns, terminal.width)
    terminal.answer(None, f"\nTimeline, {duration(timeline.took_ns / 1000)} in all:")
    terminal.table(rows, columns, cells, "", bad={number for number, row in enumerate(rows) if row.failed})
    if len(rows) < steps:
        terminal.answer(
            None, f"… {steps} steps are told in {len(rows)} rows, each that failed among them (--all)"
        )
    if beside:
        terminal.answer(
            None, f"… {beside} rows of what the process did outside of this request are left out (--all)"
        )
    if is_cut:
        terminal.answer(
            None,
            "Texts that end with … were cut to the width of the terminal (--html and --json have them whole)",
        )


def _show_origins(terminal: Terminal, account: Account) -> None:
    """Who had written what the request read."""
    rows = [(origin, write) for origin in account.origins for write in origin.last]
    if not rows:
        return
    columns = ["read", "before", "by", "written", "result"]
    cells = [
        [
            str(origin.name) if write is origin.last[0] else "",
            _before(write),
            _writer(account, write),
            write.what,
            write.result,
        ]
        for origin, write in rows
    ]
    _fit(cells, columns, terminal.width, "written")
    terminal.answer(None, "\nWhat it read was written before, last by:")
    terminal.table(rows, columns, cells, "")


def _before(write: Write) -> str:
    distance = duration(abs(write.before_ns) / 1000)
    return distance if write.before_ns >= 0 else f"+{distance}"


def _writer(account: Account, write: Write) -> str:
    process = f"process {write.pid}, " if write.pid not in (None, account.recording.pid) else ""
    return process + (f"request {write.request}" if write.request else f"thread {write.thread}")


def _cells(row: Row, lanes: Mapping[Lane, str]) -> list[str]:
    """``lanes``: names of all there are; empty where they are not to be told."""
    lane = "-" if row.outside or not row.lane else lanes.get(lane_of(row), "-").removeprefix("lane ")
    took = duration(row.took_ns / 1000) if row.took_ns is not None else ""
    return [
        f"{row.at_ns / 1e6:.1f}",
        *([lane] if lanes else []),
        row.label,
        row.what,
        row.result,
        took,
    ]


def _fit(cells: list[list[str]], columns: list[str], width: int, what_column: str = "what") -> bool:
    """Shorten the texts, in place, so that each row is one line; tell whether anything was cut."""
    what, result = columns.index(what_column), columns.index("result")
    longest = [max([len(name), *(len(row[at]) for row in cells)]) for at, name in enumerate(columns)]
    gaps = 2 * len(columns)
    room = width - gaps - sum(longest[at] for at in range(len(columns)) if at not in (what, result))
    if longest[what] + longest[result] <= room:
        return False
    for_result = min(longest[result], max(int(room * _RESULT_SHARE), room - longest[what]))
    for_what = max(_LEAST_WHAT, room - for_result)
    was_cut = False
    for row in cells:
        for at, limit in ((what, for_what), (result, for_result)):
            was_cut = was_cut or len(row[at]) > limit
            row[at] = shorten(row[at], max(1, limit))
    return was_cut


# -- what belongs to it --------------------------------------------------------------------------------------------------


def _rest(account: Account) -> Iterator[str]:
    if account.recording.events or account.recording.request is not None:
        yield f"\nRecorded: {_recorded(account)}"
    for facts in account.commits:
        if facts.taken_wall_ns is not None and account.package is not None:
            taken = f"{when(facts.taken_wall_ns)}, pause {duration(facts.pause_us)}, {size(facts.size or 0)}"
            yield f"Commit:   {facts.id[:10]} ({facts.role}), taken {taken}"
    yield from _surroundings(account.package)
    yield from (f"Note:     {one_line(note)}" for note in account.notes)
    if account.unrecorded:
        names = ", ".join(one.words for one in account.unrecorded)
        yield f"Missing:  not recorded, so a replay lacks it: {names} (`relive run --record-egress` records it)"
    yield "\nNext:"
    width = max((len(step.command) for step in account.next_steps if step.command is not None), default=0)
    for step in account.next_steps:
        yield f"  {step.command:<{width}}  # {step.why}" if step.command is not None else f"  {step.why}"


_CAPTURED = {CaptureWay.PROXY: " by the proxy", CaptureWay.BESIDE: " beside its way", None: ""}
_ASKED = {EgressWay.THROUGH: "through a recorder", EgressWay.BESIDE: "beside their way"}


def _recorded(account: Account) -> str:
    facts = account.recording
    parts = []
    if facts.request is not None:
        parts.append(f"request {facts.request}{_CAPTURED[facts.capture]}, from event {facts.sequence}")
    if facts.events:
        parts.append(f"{facts.events} event{'s' * (facts.events != 1)} inside process {facts.pid or '?'}")
    if facts.egress_way is not None:
        parts.append(f"{facts.calls} call{'s' * (facts.calls != 1)} of others {_ASKED[facts.egress_way]}")
    return "; ".join(parts)


def _surroundings(package: ErrorPackage | None) -> Iterator[str]:
    if package is None:
        return
    count = len(package.versions.packages)
    yield f"Python:   {one_line(package.versions.python)}, {count} package{'s' * (count != 1)} (--json lists them)"
    revision = package.revision
    if revision is not None:
        state = {True: ", with changes", False: "", None: ""}[revision.dirty]
        yield f"Revision: {revision.commit[:12]}{state} in {one_line(revision.root)}"
