"""An incident as a page: what failed, the frames with source and locals, the timeline drawn in lanes, what belongs to it.

Everything that came out of the service is escaped; the page runs no script and loads nothing (see ``relive.page``).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from html import escape as escape_markup
from typing import Any

from relive.incidents.report.body import ReportBody
from relive.incidents.report.condensed import condensed
from relive.incidents.report.detail import Account
from relive.incidents.report.lanes import colour_of, lane_of, lanes_from_above
from relive.incidents.report.last_good import Contrast
from relive.incidents.report.messages import Message
from relive.incidents.report.next_steps import NextStep
from relive.incidents.report.origins import ValueOrigin
from relive.incidents.report.printed import Printed
from relive.incidents.report.proxied import Proxied
from relive.incidents.report.shown import shorten
from relive.incidents.report.timeline import Row, Timeline, folded
from relive.incidents.report.words import status_text
from relive.model.failure import ErrorPackage, Frame, Link
from relive.model.quantities import duration, size, when
from relive.model.text import printable
from relive.page import page, table
from relive.recording.events import EventKind

__all__ = ["incident_page"]

_WIDTH, _LEFT, _RIGHT, _LANE, _BAR, _SCALE = 1060, 110, 10, 26, 16, 24  # [px] of the drawing
_LEAST_BAR = 3.0  # [px] a shorter call would not be seen
_TICKS = 5
_AROUND = frozenset({EventKind.REQUEST_STARTED, EventKind.HANDLING_STARTED})  # they hold what lies on them
_MOST_ROWS = 2000  # rows that are drawn and listed; --json has all
_MOST_DETAILS = 4000  # [characters] of the details of one row
_RELATIONS = {"cause": "caused by", "context": "while handling", "group": "in the group"}

_STYLE = """
pre, code { font: 13px/1.45 ui-monospace, monospace; } pre { overflow-x: auto; margin: .4rem 0; white-space: pre-wrap; }
.raised { color: var(--bad); font-size: 1.1rem; overflow-wrap: anywhere; } td { vertical-align: top; overflow-wrap: anywhere; }
details { border-bottom: 1px solid var(--line); padding: .25rem 0; } summary { cursor: pointer; overflow-wrap: anywhere; }
.source { background: var(--shade); padding: .4rem .6rem; } .source b { color: var(--bad); }
.locals td:first-child { white-space: nowrap; color: var(--dim); padding-right: 1.2rem; }
.locals td { font: 13px/1.45 ui-monospace, monospace; }
td details { border: none; padding: 0; }
.library summary { color: var(--dim); } .failed { color: var(--bad); } rect { cursor: default; }
rect.failed { stroke: var(--bad); stroke-width: 2; } .facts td:first-child { width: 9rem; color: var(--dim); }
"""


def escape(text: object) -> str:
    """Text for any place of the page, quoted attributes too; what turns the direction of text is written out."""
    return escape_markup(printable(str(text)), quote=True)


def incident_page(account: Account) -> str:
    """The page."""
    incident = account.incident
    body = [
        f"<h1>Incident {incident.number} of {escape(incident.service)}</h1>",
        f"<p>{escape(incident.sighting.summary)}</p>",
        *_raised(account),
        *_answer(account.proxied),
        *_contrast(account.contrast),
        *_timeline(account.timeline),
        *_messages(account.messages),
        *_printed(account.printed),
        *_origins(account.origins),
        "<h2>Next</h2>",
        *_next(account.next_steps),
        "<h2>What belongs to it</h2>",
        _facts(account),
        *_surroundings(account.package),
        *_notes(account.notes),
    ]
    return page(f"Incident {incident.number} of {incident.service}", body, style=_STYLE, width=1100)


# -- the exception -------------------------------------------------------------------------------------------------------


def _raised(account: Account) -> Iterator[str]:
    package = account.package
    if package is None:
        lines = account.stack.text if account.stack is not None else account.incident.log_tail
        if lines:
            yield "<h2>What the service printed</h2>"
            yield f"<pre class=source>{escape(chr(10).join(lines))}</pre>"
        return
    failing = package.failing_frame()
    for number, link in enumerate(package.chain):
        words = _RELATIONS.get(link.relation.value if link.relation is not None else "", "")
        text = f"{link.type.removeprefix('builtins.')}: {link.text}"
        heading = f"<p class=dim>{words}</p>" if number and words else ""
        yield f"{heading}<p class=raised><code>{escape(text)}</code></p>"
        yield from _frames(link, failing if number == 0 else None)


def _frames(link: Link, failing: Frame | None) -> Iterator[str]:
    """Innermost first; neighbouring frames of libraries in one fold."""
    libraries: list[Frame] = []
    for frame in reversed(link.frames):
        if not frame.own:
            libraries.append(frame)
            continue
        yield from _folded(libraries)
        libraries = []
        yield _frame(frame, is_open=frame is failing)
    yield from _folded(libraries)


def _folded(frames: Sequence[Frame]) -> Iterator[str]:
    if frames:
        inner = "".join(_frame(frame, is_open=False) for frame in frames)
        count = f"{len(frames)} frame{'s' * (len(frames) != 1)} of libraries"
        yield f"<details class=library><summary>{count}</summary>{inner}</details>"


def _frame(frame: Frame, *, is_open: bool) -> str:
    parts = [f"<summary><code>{escape(frame.function)}</code> {escape(frame.file)}:{frame.line}</summary>"]
    if frame.source is not None:
        numbered = enumerate(frame.source.lines, frame.source.first)
        lines = [f"{number:>5}  {escape(line)}" for number, line in numbered]
        at = frame.line - frame.source.first
        if 0 <= at < len(lines):
            lines[at] = f"<b>{lines[at]}</b>"
        parts.append(f"<pre class=source>{chr(10).join(lines)}</pre>")
    if frame.locals:
        rows = "".join(
            f"<tr><td>{escape(name)}</td><td>{escape(text)}</td></tr>" for name, text in frame.locals.items()
        )
        parts.append(f"<table class=locals>{rows}</table>")
    if frame.locals_cut:
        parts.append(f"<p class=dim>{frame.locals_cut} more locals were not kept.</p>")
    return f"<details{' open' if is_open else ''}>{''.join(parts)}</details>"


# -- where what it read came from ------------------------------------------------------------------------------------------


def _origins(origins: Sequence[ValueOrigin]) -> Iterator[str]:
    if not origins:
        return
    yield "<h2>What it read was written before, last by</h2>"
    rows = [
        [
            escape(origin.name) if write is origin.last[0] else "",
            ("" if write.before_ns >= 0 else "+") + duration(abs(write.before_ns) / 1000),
            f"request {write.request}" if write.request else f"thread {write.thread}",
            escape(write.what),
            escape(write.result),
        ]
        for origin in origins
        for write in origin.last
    ]
    yield table(["read", "before", "by", "written", "result"], rows, numbers=[1])


# -- the answer, and what differs from a good one ---------------------------------------------------------------------------


def _answer(one: Proxied | None) -> Iterator[str]:
    if one is None or one.status is None:
        return
    yield "<h2>The answer</h2>"
    yield f"<p>{escape(f'{one.method} {one.target}')}: {escape(status_text(one.status))}</p>"
    if not one.answer_body.is_empty:
        yield f"<pre class=source>{escape(shorten(one.answer_body.words(), _MOST_DETAILS))}</pre>"


def _contrast(found: Contrast | None) -> Iterator[str]:
    if found is None:
        return
    before = duration(found.before_ns / 1000)
    yield "<h2>Beside the last request to its route that went well</h2>"
    yield f"<p class=dim>Request {found.request}, {escape(before)} before it.</p>"
    rows = [
        [
            escape(one.what),
            f"<span class={'failed' if one.failed else 'fine'}>{escape(one.now)}</span>",
            escape(one.then),
        ]
        for one in found.differences
    ]
    yield table(["what", "now", "then"], rows)
    if found.left_out:
        yield f"<p class=dim>{found.left_out} more differences are left out.</p>"


def _messages(messages: Sequence[Message]) -> Iterator[str]:
    if messages:
        yield "<h2>Last said by clients and service</h2>"
        rows = (
            f"{duration(one.before_ns / 1000)} before  connection {one.connection}  "
            f"{'&gt;' if one.by_client else '&lt;'} {escape(one.body.words())}"
            for one in messages
        )
        yield f"<pre class=source>{chr(10).join(rows)}</pre>"


def _printed(printed: Sequence[Printed]) -> Iterator[str]:
    for one in printed:
        missing = f"… {one.left_out} bytes before\n" if one.left_out else ""
        yield f"<h2>What it wrote during the request ({escape(one.stream)})</h2>"
        yield f"<pre class=source>{escape(missing + chr(10).join(one.lines))}</pre>"


def _next(steps: Sequence[NextStep]) -> Iterator[str]:
    for one in steps:
        command = f"<code>{escape(one.command)}</code>: " if one.command is not None else ""
        yield f"<p>{command}{escape(one.why)}</p>"


# -- the timeline --------------------------------------------------------------------------------------------------------


def _timeline(timeline: Timeline | None) -> Iterator[str]:
    if timeline is None or not timeline.rows:
        return
    rows = condensed(timeline.rows, _MOST_ROWS)
    yield f"<h2>Timeline, {duration(timeline.took_ns / 1000)}</h2>"
    yield _drawing(rows)
    yield f'<p class="dim">{_legend(rows)}</p>'
    if len(timeline.rows) > len(rows):
        yield f'<p class="dim">{len(timeline.rows)} steps in {len(rows)} rows: what repeats is one; --json has each.</p>'
    names = lanes_from_above(rows)
    lines = [
        [
            f"{row.at_ns / 1e6:.2f}",
            escape(names[lane_of(row)]),
            escape(row.label),
            _what(row),
            f"<span class={'failed' if row.failed else 'fine'}>{escape(row.result)}</span>",
            escape(duration(row.took_ns / 1000)) if row.took_ns is not None else "",
        ]
        for row in folded(rows)
    ]
    yield table(["at ms", "lane", "kind", "what", "result", "took"], lines, numbers=(0, 5))


def _what(row: Row) -> str:
    details = _details(row.details)
    if not details:
        return escape(row.what)
    return f"<details><summary>{escape(row.what)}</summary><pre>{escape(details)}</pre></details>"


def _details(details: dict[str, Any]) -> str:
    rest = {name: value for name, value in details.items() if name not in ("body", "thread")}
    text = json.dumps(rest, indent=1, ensure_ascii=False, default=str) if rest else ""
    body = details.get("body")
    if isinstance(body, dict):
        text += f"\nbody: {ReportBody.model_validate(body).words()}"
    return shorten(text, _MOST_DETAILS)


def _drawing(rows: Sequence[Row]) -> str:
    names = lanes_from_above(rows)
    lanes = list(names)
    first = min(0, *(row.at_ns for row in rows))
    last = max(1, *(row.at_ns + (row.took_ns or 0) for row in rows))
    span = last - first

    def across(at_ns: int) -> float:
        return _LEFT + (_WIDTH - _LEFT - _RIGHT) * (at_ns - first) / span

    height = _SCALE + _LANE * len(lanes)
    pieces = []
    for tick in range(_TICKS + 1):
        at_ns = first + span * tick // _TICKS
        x, anchor = across(at_ns), "end" if tick == _TICKS else "start" if tick == 0 else "middle"
        pieces.append(f'<line class="axis" x1="{x:.1f}" x2="{x:.1f}" y1="{_SCALE - 6}" y2="{height}"/>')
        label = escape(duration(at_ns / 1000))
        pieces.append(f'<text x="{x:.1f}" y="12" text-anchor="{anchor}">{label}</text>')
    for number, lane in enumerate(lanes):
        y = _SCALE + _LANE * number
        pieces.append(f'<text x="0" y="{y + 13}">{escape(names[lane])}</text>')
    # Long ones first, so that what they hold lies on top of them; nothing lies on a failure.
    for row in sorted(rows, key=lambda row: (row.failed and row.kind not in _AROUND, -(row.took_ns or 0))):
        x = across(row.at_ns)
        width = max(_LEAST_BAR, across(row.at_ns + (row.took_ns or 0)) - x)
        y = _SCALE + _LANE * lanes.index(lane_of(row))
        took = f", {duration(row.took_ns / 1000)}" if row.took_ns is not None else ""
        tooltip = escape(f"{row.label}: {row.what}\n{row.result}{took}")
        marked = ' class="failed"' if row.failed else ""
        pieces.append(
            f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{_BAR}" rx="2"{marked} '
            f'fill="{colour_of(row.kind)}"><title>{tooltip}</title></rect>'
        )
    return f'<svg viewBox="0 0 {_WIDTH} {height}" role="img" aria-label="timeline">{"".join(pieces)}</svg>'


def _legend(rows: Sequence[Row]) -> str:
    labels = {row.label: colour_of(row.kind) for row in rows}
    return " ".join(
        f'<span class="swatch" style="background:{colour}"></span>{escape(label)}&emsp;'
        for label, colour in labels.items()
    )


# -- facts ---------------------------------------------------------------------------------------------------------------


def _facts(account: Account) -> str:
    rows = [*_incident_facts(account)]
    for one in account.commits:
        about = "no longer in the store"
        if one.taken_wall_ns is not None:
            about = f"{when(one.taken_wall_ns)}, pause {duration(one.pause_us)}, {size(one.size or 0)}"
        rows.append((f"commit {one.role}", f"{one.id} ({about})"))
    rows += _recording_facts(account)
    if account.unrecorded:
        rows.append(("not recorded", ", ".join(one.words for one in account.unrecorded)))
    if account.package is not None:
        rows += _package_facts(account.package)
    cells = "".join(f"<tr><td>{escape(name)}</td><td>{escape(value)}</td></tr>" for name, value in rows)
    return f"<table class=facts>{cells}</table>"


def _incident_facts(account: Account) -> Iterator[tuple[str, str]]:
    incident = account.incident
    times = f"{incident.times} time{'s' * (incident.times != 1)}"
    yield "first seen", f"{when(incident.sighting.seen_wall_ns)}, kind {incident.sighting.kind.value}"
    yield "seen", f"{times}, last {when(incident.last_seen_wall_ns)}"


def _recording_facts(account: Account) -> Iterator[tuple[str, str]]:
    facts = account.recording
    if facts.request is not None:
        yield "proxy", f"request {facts.request}, from event {facts.sequence}, in {facts.proxy}"
    if facts.events:
        yield (
            "inside",
            f"{facts.events} events of process {facts.pid}, in {facts.inside or 'files beside the incident'}",
        )
    if facts.calls:
        yield "border", f"{facts.calls} calls, in {facts.egress}"


def _package_facts(package: ErrorPackage) -> Iterator[tuple[str, str]]:
    yield "escaped from", f"{package.where.value}, thread {package.thread}, process {package.pid}"
    yield "fingerprint", package.fingerprint
    yield "command", " ".join(package.argv)
    if package.revision is not None:
        state = " with changes" if package.revision.dirty else ""
        yield "revision", f"{package.revision.commit}{state} in {package.revision.root}"
    yield "python", package.versions.python


def _surroundings(package: ErrorPackage | None) -> Iterator[str]:
    """Long lists, folded."""
    if package is None:
        return
    for title, values, between in (
        ("packages", package.versions.packages, " "),
        ("variables of the environment", package.environment, "="),
    ):
        lines = "\n".join(f"{name}{between}{value}" for name, value in values.items())
        if lines:
            yield f"<details><summary>{len(values)} {title}</summary><pre>{escape(lines)}</pre></details>"


def _notes(notes: Sequence[str]) -> Iterator[str]:
    if notes:
        yield "<h2>Notes</h2><ul>" + "".join(f"<li>{escape(note)}</li>" for note in notes) + "</ul>"
