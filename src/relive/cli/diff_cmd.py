"""``relive diff``: what differs between two commits of a service, or two runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from relive.cli.diff_page import diff_page
from relive.cli.divergence_cmd import layers
from relive.cli.terminal import AsJson, Terminal
from relive.config import load_settings
from relive.errors import UsageError
from relive.inspection.words import change_words, value_change_lines
from relive.model.quantities import size
from relive.operations.differences import CommitDifference, DiffParams
from relive.operations.differences import diff as compare
from relive.operations.diverging import DivergenceParams, RunsDifference, divergence, is_run_ref

if TYPE_CHECKING:
    from relive.inspection.memory_changes import MemoryChanges
    from relive.inspection.state_changes import StateChanges

__all__ = ["diff"]

_REGIONS = 20
_VALUES = 200


def diff(
    before: Annotated[
        str, typer.Argument(help="A commit: id, tag, NAME, or NAME@{2 minutes ago}; or a run: run/7")
    ],
    after: Annotated[str, typer.Argument(help="Another commit, or run, of the same service")],
    python: Annotated[
        bool,
        typer.Option("--python", help="Compare the values of the service's own Python modules, too"),
    ] = False,
    process: Annotated[
        int | None,
        typer.Option(
            help="Whose values; without: the Python process that has loaded most of the service",
            min=1,
        ),
    ] = None,
    html: Annotated[
        Path | None,
        typer.Option("--html", help="Write it as a page whose layers fold to this file, replacing it"),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Compare two commits of a service: files, processes, descriptors, memory, Python values; or two runs

    All but --python is read from the store, and nothing is restored. Pages that lie at the same place of the store are the same and
    are not read. Secrets are masked.

    Of two runs (`run/7`, `run/7.2`, `run/7.recorded`) it tells the first event that differs, then bodies, logs and events line by
    line.
    """
    terminal = Terminal(as_json=as_json)
    if is_run_ref(before) or is_run_ref(after):
        runs = _compare_runs(before, after, terminal, has_more=python or process is not None)
        terminal.answer(runs, lambda: "\n".join(layers(runs)))
        if html is not None:
            _write(html, f"{runs.before} and {runs.after} of {runs.service}", layers(runs))
        return
    params = DiffParams(before=before, after=after, python=python, process=process)
    found = compare(load_settings(), params, terminal)
    terminal.answer(found, lambda: "\n".join(_lines(found)))
    if html is not None:
        title = f"{found.before[:10]} and {found.after[:10]} of {found.target}"
        _write(html, title, _lines(found, is_whole=True))


def _write(file: Path, title: str, lines: Iterable[str]) -> None:
    try:
        file.write_text(diff_page(title, lines), "utf-8", errors="backslashreplace")
    except OSError as error:
        raise UsageError(f"--html: {file} cannot be written", cause=error.strerror) from error


def _compare_runs(before: str, after: str, terminal: Terminal, *, has_more: bool) -> RunsDifference:
    if not (is_run_ref(before) and is_run_ref(after)):
        raise UsageError(
            f"{before!r} and {after!r} are a commit and a run",
            cause="what a run did and what a commit holds are different things",
            remedy="name two runs (run/7 run/8), or two commits",
        )
    if has_more:
        raise UsageError("--python and --process are for commits", remedy="leave them out")
    return divergence(load_settings(), DivergenceParams(before=before, after=after), terminal)


def _lines(found: CommitDifference, *, is_whole: bool = False) -> Iterator[str]:
    """``is_whole``: with all regions and values, not only those that one reads on a terminal."""
    yield f"{found.target}: {found.before[:10]} -> {found.after[:10]}"
    if not found.same_life:
        yield "They are of different starts of the service: numbers and addresses are not the same things."
    yield from _file_lines(found)
    yield from _state_lines(found.state)
    yield from _memory_lines(found.memory, None if is_whole else _REGIONS)
    if found.python is not None:
        yield ""
        count = len(found.python.changes)
        yield (
            f"Python values of process {found.python.process or '?'}: {count} differ, {found.python.compared} compared"
            + ("; there are more than are compared" if found.python.cut else "")
        )
        if is_whole:
            yield from (f"  {change_words(one)}" for one in found.python.changes)
        else:
            lines = value_change_lines(found.python.changes, _VALUES, "--json, --html")
            yield from (f"  {line}" for line in lines)


def _file_lines(found: CommitDifference) -> Iterator[str]:
    yield ""
    yield f"files: {len(found.files)} differ"
    for one in found.files:
        sizes = " -> ".join("none" if count is None else size(count) for count in (one.before, one.after))
        yield f"  {one.change.value}  {one.path}  {sizes}"
        yield from (f"    {line}" for line in one.lines)
        if one.cut:
            yield f"    and {one.cut} more lines"


def _state_lines(state: StateChanges) -> Iterator[str]:
    yield ""
    yield f"processes: {len(state.processes)} differ, {len(state.added)} came, {len(state.gone)} went"
    yield from (f"  + {one}" for one in state.added)
    yield from (f"  - {one}" for one in state.gone)
    for one in state.processes:
        yield f"  {one.pid} {one.name}"
        yield from (f"    {change_words(field)}" for field in one.fields)
        yield from (f"    {change_words(field)} (environment)" for field in one.environment)
        for descriptor in one.descriptors:
            if descriptor.fields:
                changed = "; ".join(change_words(field) for field in descriptor.fields)
                yield f"    fd {descriptor.fd}  {descriptor.after}: {changed}"
            else:
                yield f"    fd {descriptor.fd}  {descriptor.before or 'none'} -> {descriptor.after or 'none'}"
        yield from (f"    + thread {tid}" for tid in one.threads_added)
        yield from (f"    - thread {tid}" for tid in one.threads_gone)
        yield from (f"    thread {change_words(call)}" for call in one.calls)
    yield from (
        f"  + lock {one.kind} {one.mode} of {one.pid}:{one.fd} on {one.path}" for one in state.locks_added
    )
    yield from (
        f"  - lock {one.kind} {one.mode} of {one.pid}:{one.fd} on {one.path}" for one in state.locks_gone
    )


def _memory_lines(memory: MemoryChanges, most: int | None) -> Iterator[str]:
    yield ""
    yield (
        f"memory: {memory.changed} of {memory.pages} pages differ, {memory.added} came, {memory.dropped} went "
        f"({memory.compared} were read)"
    )
    regions = sorted(memory.regions, key=lambda one: -(one.changed + one.added + one.dropped))
    for one in regions[:most]:
        counts = f"{one.changed} differ, {one.added} came, {one.dropped} went"
        sizes = " -> ".join("none" if count is None else size(count) for count in (one.before, one.after))
        yield f"  {one.pid or ''} {one.start} {one.permissions}  {counts}  {sizes}  {one.name}"
    if most is not None and len(regions) > most:
        yield f"  and {len(regions) - most} more mappings (--json, --html)"
