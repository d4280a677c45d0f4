"""``relive inspect``: what a commit holds, without running it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from relive.cli.terminal import AsJson, Terminal
from relive.config import load_settings
from relive.errors import UsageError
from relive.inspection.words import descriptor_words, waiting_words
from relive.model.quantities import size, when
from relive.operations import inspections
from relive.operations.inspections import (
    FindParams,
    InspectParams,
    ObjectsParams,
    RuntimeParams,
    StacksParams,
    find_in_memory,
    python_objects,
    python_stacks,
    runtime_state,
)

if TYPE_CHECKING:
    from relive.inspection.python.values import PythonObjects
    from relive.inspection.search import MemoryMatches
    from relive.inspection.state import CommitState, ProcessState

__all__ = ["inspect"]

_REGIONS = 8
_DEPTH = 3
_MATCHES, _OBJECTS = 100, 20
_TEXT = 60  # characters of an object that nobody known holds


def inspect(
    ref: Annotated[str, typer.Argument(help="A commit: id, tag, NAME, or NAME@{2 minutes ago}")],
    expression: Annotated[
        str | None,
        typer.Argument(help="With --python: an expression whose value is told, with what is in it"),
    ] = None,
    process: Annotated[int | None, typer.Option(help="Only the process of this number inside", min=1)] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="With the environment, every mapping, and registers")
    ] = False,
    find: Annotated[
        str | None,
        typer.Option(
            metavar="PATTERN", help="Where this stands in memory: a text, hex:0011ff, or re:EXPRESSION"
        ),
    ] = None,
    most: Annotated[
        int | None,
        typer.Option(
            help="At most so many matches (without: 100), types and objects (20)", min=1, max=10_000
        ),
    ] = None,
    python: Annotated[
        bool,
        typer.Option(
            "--python", help="Stacks of all Python threads with locals, and the service's own globals"
        ),
    ] = False,
    depth: Annotated[
        int | None,
        typer.Option(
            help="With an expression: tell what is in its value so many levels deep (without: 3)",
            min=0,
            max=20,
        ),
    ] = None,
    referrers: Annotated[
        int | None,
        typer.Option(help="With an expression: tell so many of those who refer to its value", min=1, max=100),
    ] = None,
    objects: Annotated[
        bool,
        typer.Option(
            "--objects", help="The Python types and objects that take most memory, and who holds them"
        ),
    ] = False,
    runtime: Annotated[
        bool,
        typer.Option(
            "--runtime",
            help="What the process's runtime says, whichever it is: Python, Node.js (stack, heap, modules' values) or Java "
            "(threads, locks, classes)",
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Look into a commit: processes, descriptors, sockets, memory, locks, threads; search its memory

    All is read from the store, and nothing is restored, but for --python, --objects and --runtime: then the process itself is
    asked, in a sealed branch that is removed at once. Secrets are masked.
    """
    terminal = Terminal(as_json=as_json)
    settings = load_settings()
    if expression is not None and not python:
        raise UsageError("an expression is for --python", remedy="relive inspect REF --python EXPRESSION")
    if expression is None and (depth is not None or referrers is not None):
        raise UsageError(
            "--depth and --referrers are about the value of an expression",
            remedy="relive inspect REF --python EXPRESSION --depth 5",
        )
    asked = [
        name
        for name, is_asked in (
            ("--find", find is not None),
            ("--python", python),
            ("--objects", objects),
            ("--runtime", runtime),
        )
        if is_asked
    ]
    if len(asked) > 1:
        raise UsageError(
            f"{' and '.join(asked)} are {len(asked)} questions", remedy="ask one after the other"
        )
    if python and expression is not None:
        from relive.cli.eval_cmd import show_value
        from relive.operations.inspections import EvaluateParams, evaluate

        wanted = EvaluateParams(
            ref=ref,
            process=process,
            expression=expression,
            depth=_DEPTH if depth is None else depth,
            referrers=referrers or 0,
        )
        show_value(terminal, evaluate(settings, wanted, terminal))
    elif python:
        from relive.cli.runtimes import stack_lines

        stacks = python_stacks(settings, StacksParams(ref=ref, process=process), terminal)
        terminal.answer(stacks, lambda: "\n".join(stack_lines(stacks)))
    elif objects:
        heap = python_objects(
            settings, ObjectsParams(ref=ref, process=process, most=most or _OBJECTS), terminal
        )
        terminal.answer(heap, lambda: "\n".join(_object_lines(heap)))
    elif runtime:
        from relive.cli.runtimes import runtime_lines

        told = runtime_state(
            settings, RuntimeParams(ref=ref, process=process, most=most or _OBJECTS), terminal
        )
        terminal.answer(told, lambda: "\n".join(runtime_lines(told)))
    elif find is not None:
        found = find_in_memory(settings, FindParams(ref=ref, pattern=find, most=most or _MATCHES), terminal)
        _show_found(terminal, found)
    else:
        state = _only(inspections.inspect(settings, InspectParams(ref=ref), terminal), process)
        terminal.answer(state, lambda: "\n".join(_lines(state, everything=everything)))


def _only(state: CommitState, process: int | None) -> CommitState:
    if process is None:
        return state
    chosen = [one for one in state.processes if one.pid == process]
    if not chosen:
        known = ", ".join(str(one.pid) for one in state.processes)
        raise UsageError(f"the commit has no process {process}", cause=f"there are {known}")
    return state.model_copy(update={"processes": chosen})


# -- state -------------------------------------------------------------------------------------------------------------


def _lines(state: CommitState, *, everything: bool) -> Iterator[str]:
    count = len(state.processes)
    memory = size(sum(one.stored for one in state.processes) + state.shared)
    yield (
        f"{state.target}, commit {state.commit[:10]}, taken {when(state.taken_wall_ns)[:19]}: "
        f"{count} process{'' if count == 1 else 'es'}, {memory} of memory"
    )
    for process, depth in _tree(state.processes):
        yield ""
        yield from ("  " * depth + line for line in _process_lines(process, everything=everything))
    if state.locks:
        yield ""
        yield "locks on files"
        for lock in state.locks:
            reach = f", bytes {lock.start} to {lock.start + lock.length}" if lock.length else ""
            yield f"  {lock.pid}:{lock.fd}  {lock.kind} {lock.mode}{reach}  {lock.path}"
    if state.waiting:
        yield ""
        yield "who waits for whom"
        yield from (f"  {waiting_words(one)}" for one in state.waiting)


def _tree(processes: list[ProcessState]) -> Iterator[tuple[ProcessState, int]]:
    """Each with how deep it stands below its root, children behind their parent."""
    children: dict[int, list[ProcessState]] = defaultdict(list)
    known = {one.pid for one in processes}
    for one in processes:
        children[one.parent if one.parent in known and one.parent != one.pid else 0].append(one)
    left = [(one, 0) for one in reversed(children[0])]
    while left:
        process, depth = left.pop()
        yield process, depth
        left += [(one, depth + 1) for one in reversed(children[process.pid])]


def _process_lines(process: ProcessState, *, everything: bool) -> Iterator[str]:
    yield f"process {process.pid}  {' '.join(process.command) or process.name}"
    yield f"  {process.state}, user {process.uid}, in {process.directory}, runs {process.executable}"
    for thread in process.threads:
        yield f"  thread {thread.tid}  {thread.name}  {thread.call or 'computing, or in a call that cannot be told'}"
        if everything:
            yield "    " + "  ".join(f"{name}={value}" for name, value in thread.registers.items())
    yield from (f"  fd {one.fd}  {descriptor_words(one)}" for one in process.descriptors)
    yield f"  memory: {size(process.mapped)} mapped, {size(process.stored)} of it in the commit"
    yield from _region_lines(process, everything=everything)
    if everything:
        yield "  environment"
        yield from (f"    {name}={value}" for name, value in sorted(process.environment.items()))
    else:
        yield f"  environment: {len(process.environment)} variables (--all)"


def _region_lines(process: ProcessState, *, everything: bool) -> Iterator[str]:
    if everything:
        for one in process.regions:
            shared = f"  shared with {', '.join(map(str, one.shared_with))}" if one.shared_with else ""
            stored = f"{size(one.stored)} stored"
            yield f"    {one.start}-{one.end} {one.permissions} {size(one.size)}, {stored}  {one.name}{shared}"
        return
    sums: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for one in process.regions:
        sums[one.name or "(anonymous)"][0] += one.size
        sums[one.name or "(anonymous)"][1] += one.stored
    largest = sorted(sums.items(), key=lambda item: -item[1][1])
    yield from (
        f"    {size(stored):>10} of {size(mapped):>10}  {name}"
        for name, (mapped, stored) in largest[:_REGIONS]
    )
    if len(largest) > _REGIONS:
        yield f"    and {len(largest) - _REGIONS} more (--all)"


# -- search ------------------------------------------------------------------------------------------------------------


def _show_found(terminal: Terminal, found: MemoryMatches) -> None:
    if terminal.as_json:
        terminal.answer(found)
        return
    rows = [
        [", ".join(map(str, one.pids)) or "-", one.address, one.region or one.permissions, one.text]
        for one in found.hits
    ]
    terminal.table(rows, ["process", "address", "where", "text"], rows, "It stands nowhere.")
    more = "; there may be more (--most)" if found.more else ""
    terminal.status(f"{len(found.hits)} found in {size(found.searched)} of memory{more}.")


# -- Python ------------------------------------------------------------------------------------------------------------


def _object_lines(found: PythonObjects) -> Iterator[str]:
    yield f"process {found.process}: {found.count:,} objects, {size(found.size)}"
    yield ""
    yield "types, most bytes first"
    for kind in found.types:
        held = f"  such as {kind.held_by}" if kind.held_by is not None else ""
        yield f"  {size(kind.size):>10}  {kind.count:>10,}  {kind.name}{held}"
    if found.types_left_out:
        yield f"  and {found.types_left_out} more that take less"
    yield ""
    yield "objects, most bytes first, without what they lead to"
    for one in found.objects:
        entries = f" of {one.count:,}" if one.count is not None else ""
        yield f"  {size(one.size):>10}  {one.type}{entries}  {one.held_by or one.text[:_TEXT]}"
