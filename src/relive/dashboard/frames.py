"""The exceptions of an incident as HTML: own code open, libraries folded, the line that ran in its source, locals beside it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from relive.dashboard.look import escape
from relive.incidents.report.shown import shorten
from relive.model.failure import ErrorPackage, Frame, Link

__all__ = ["exceptions", "frame_location", "locals_table"]

_RELATIONS = {"cause": "Caused by", "context": "While handling", "group": "In the group"}
_LONG = 160  # [characters] of a value
_OPEN = 3  # own frames of the exception that escaped, the innermost ones


def exceptions(package: ErrorPackage) -> str:
    """All exceptions of the chain, the one that escaped first, each innermost frame first."""
    parts = ['<div class="rl">']
    for number, link in enumerate(package.chain):
        if number:
            words = _RELATIONS.get(link.relation.value if link.relation is not None else "", "Then")
            exception = escape(f"{link.type.removeprefix('builtins.')}: {link.text}")
            parts.append(
                f'<p><span class="rl-dim">{words}</span> <code class="rl-bad">{exception}</code></p>'
            )
        parts += _frames(link, package, is_first=number == 0)
    return "".join([*parts, "</div>"])


def frame_location(frame: Frame, package: ErrorPackage) -> str:
    """``charge in shop/pay.py, line 57``; the file as seen from where the service's code lies."""
    return f"{frame.function} in {package.short_path(frame.file)}, line {frame.line}"


def _frames(link: Link, package: ErrorPackage, *, is_first: bool) -> Iterator[str]:
    libraries: list[Frame] = []
    opened = 0
    has_own = any(frame.own for frame in link.frames)
    for frame in reversed(link.frames):
        if not frame.own and has_own:
            libraries.append(frame)
            continue
        yield from _folded(libraries, package)
        libraries = []
        yield _frame(frame, package, is_open=is_first and opened < _OPEN)
        opened += 1
    yield from _folded(libraries, package)


def _folded(frames: Sequence[Frame], package: ErrorPackage) -> Iterator[str]:
    if frames:
        inner = "".join(_frame(frame, package, is_open=False) for frame in frames)
        summary = f"{len(frames)} frame{'s' * (len(frames) != 1)} of libraries"
        yield f'<details><summary class="rl-dim">{summary}</summary><div style="padding-left:1rem">{inner}</div></details>'


def _frame(frame: Frame, package: ErrorPackage, *, is_open: bool) -> str:
    where = f'<span class="rl-dim">{escape(package.short_path(frame.file))}:{frame.line}</span>'
    summary = f"<summary><code>{escape(frame.function)}</code> {where}</summary>"
    return (
        f"<details{' open' if is_open else ''}>{summary}"
        f'<div class="rl-frame"><div>{_source(frame)}</div><div>{_locals(frame)}</div></div></details>'
    )


def _source(frame: Frame) -> str:
    if frame.source is None:
        return '<p class="rl-dim">Its source could not be read.</p>'
    lines = [
        f"<span{' class=rl-ran' if number == frame.line else ''}>{number:>4}  {escape(line)}</span>"
        for number, line in enumerate(frame.source.lines, frame.source.first)
    ]
    return f'<pre class="rl-source">{"".join(lines)}</pre>'


def _value(text: str) -> str:
    """A long one shows its beginning, and all of it when it is opened."""
    if len(text) <= _LONG:
        return escape(text)
    return f"<details><summary>{escape(shorten(text, _LONG))}</summary>{escape(text)}</details>"


def _locals(frame: Frame) -> str:
    if not frame.locals:
        return '<p class="rl-dim">No locals were kept.</p>'
    cut = f'<p class="rl-dim">{frame.locals_cut} more locals were not kept.</p>' if frame.locals_cut else ""
    return f"{locals_table(frame.locals)}{cut}"


def locals_table(values: Mapping[str, str]) -> str:
    """Names and texts."""
    rows = "".join(
        f"<tr><td>{escape(name)}</td><td>{_value(text)}</td></tr>" for name, text in values.items()
    )
    return f'<table class="rl-locals">{rows}</table>'
