"""``relive diff``: what differs between two commits of a service, or two runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from relive.cli.divergence_cmd import layers
from relive.cli.terminal import AsJson, Terminal
from relive.config import load_settings
from relive.errors import UsageError
from relive.model.quantities import size
from relive.operations.differences import CommitDifference, DiffWish
from relive.operations.differences import diff as compare
from relive.operations.diverging import DivergenceWish, divergence, is_run_ref

if TYPE_CHECKING:
    from relive.inspection.memory_changes import MemoryChanges
    from relive.inspection.state_changes import FieldChange, StateChanges

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
        typer.Option(help="Whose values; without: the first process that runs Python", min=1),
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
        _compare_runs(before, after, terminal, has_more=python or process is not None)
        return
    wish = DiffWish(before=before, after=after, python=python, process=process)
    found = compare(load_settings(), wish, terminal)
    terminal.answer(found, lambda: "\n".join(_lines(found)))


def _compare_runs(before: str, after: str, terminal: Terminal, *, has_more: bool) -> None:
    if not (is_run_ref(before) and is_run_ref(after)):
        raise UsageError(
            f"{before!r} and {after!r} are a commit and a run",
            cause="what a run did and what a commit holds are different things",
            remedy="name two runs (run/7 run/8), or two commits",
        )
    if has_more:
        raise UsageError("--python and --process are for commits", remedy="leave them out")
    found = divergence(load_settings(), DivergenceWish(before=before, after=after), terminal)
    terminal.answer(found, lambda: "\n".join(layers(found)))


def _lines(found: CommitDifference) -> Iterator[str]:
    yield f"{found.target}: {found.before[:10]} -> {found.after[:10]}"
    if not found.same_life:
        yield "They are of different starts of the service: numbers and addresses are not the same things."
    yield from _file_lines(found)
    yield from _state_lines(found.state)
    yield from _memory_lines(found.memory)
    if found.python is not None:
        yield ""
        count = len(found.python.changes)
        yield f"Python values: {count} differ, {found.python.compared} compared" + (
            "; there are more than are compared" if found.python.cut else ""
        )
        yield from (f"  {_change(one)}" for one in found.python.changes[:_VALUES])
        if count > _VALUES:
            yield f"  and {count - _VALUES} more (--json)"


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
        yield from (f"    {_change(field)}" for field in one.fields)
        yield from (f"    {_change(field)} (environment)" for field in one.environment)
        for descriptor in one.descriptors:
            if descriptor.fields:
                changed = "; ".join(_change(field) for field in descriptor.fields)
                yield f"    fd {descriptor.fd}  {descriptor.after}: {changed}"
            else:
                yield f"    fd {descriptor.fd}  {descriptor.before or 'none'} -> {descriptor.after or 'none'}"
        yield from (f"    + thread {tid}" for tid in one.threads_added)
        yield from (f"    - thread {tid}" for tid in one.threads_gone)
        yield from (f"    thread {_change(call)}" for call in one.calls)
    yield from (
        f"  + lock {one.kind} {one.mode} of {one.pid}:{one.fd} on {one.path}" for one in state.locks_added
    )
    yield from (
        f"  - lock {one.kind} {one.mode} of {one.pid}:{one.fd} on {one.path}" for one in state.locks_gone
    )


def _memory_lines(memory: MemoryChanges) -> Iterator[str]:
    yield ""
    yield (
        f"memory: {memory.changed} of {memory.pages} pages differ, {memory.added} came, {memory.dropped} went "
        f"({memory.compared} were read)"
    )
    regions = sorted(memory.regions, key=lambda one: -(one.changed + one.added + one.dropped))
    for one in regions[:_REGIONS]:
        counts = f"{one.changed} differ, {one.added} came, {one.dropped} went"
        sizes = " -> ".join("none" if count is None else size(count) for count in (one.before, one.after))
        yield f"  {one.pid or ''} {one.start} {one.permissions}  {counts}  {sizes}  {one.name}"
    if len(regions) > _REGIONS:
        yield f"  and {len(regions) - _REGIONS} more mappings (--json)"


def _change(change: FieldChange) -> str:
    if change.before is None:
        return f"{change.name}: added {change.after}"
    if change.after is None:
        return f"{change.name}: gone, was {change.before}"
    return f"{change.name}: {change.before} -> {change.after}"
