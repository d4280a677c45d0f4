"""What the runtime of a process said of itself, as text: stacks, locks, heap, names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from relive.model.quantities import size

if TYPE_CHECKING:
    from relive.inspection.java.values import JavaState, JavaThread
    from relive.inspection.node.values import NodeState, NodeWorker
    from relive.inspection.python.values import PythonStacks, PythonWait
    from relive.inspection.runtime_state import RuntimeState

__all__ = ["runtime_lines", "stack_lines"]

_GLOBALS = 40
_FRAMES = 12  # of a thread of Java


def runtime_lines(told: RuntimeState) -> Iterator[str]:
    """Whichever it is."""
    if told.python is not None:
        yield from stack_lines(told.python)
    if told.node is not None:
        yield from _node_lines(told.node)
    if told.java is not None:
        yield from _java_lines(told.java)


def stack_lines(stacks: PythonStacks) -> Iterator[str]:
    """Who waits for whom, all threads and tasks of a Python process with locals, and globals."""
    if stacks.waits:
        yield "who waits for whom"
        yield from (f"  {_wait_words(one)}" for one in stacks.waits)
        yield ""
    for thread in stacks.threads:
        number = f" ({thread.native})" if thread.native is not None else ""
        yield f"thread {thread.name}{number}"
        for frame in thread.frames:
            yield f"  {frame.function}  {frame.file}:{frame.line}"
            yield from (f"    {name} = {value}" for name, value in frame.locals.items())
        yield ""
    for task in stacks.tasks:
        waits = ", ".join(task.awaits) or task.waits_for
        yield f"task {task.name}, waits for {waits}" if waits is not None else f"task {task.name}"
        for frame in task.frames:
            yield f"  {frame.function}  {frame.file}:{frame.line}"
            yield from (f"    {name} = {value}" for name, value in frame.locals.items())
        yield ""
    for module, names in stacks.globals.items():
        yield f"globals of {module}"
        yield from (f"  {name} = {value}" for name, value in list(names.items())[:_GLOBALS])
        if len(names) > _GLOBALS:
            yield f"  and {len(names) - _GLOBALS} more (--json)"


def _wait_words(wait: PythonWait) -> str:
    if wait.holders == [wait.what]:
        return f"{wait.who} waits for the end of {wait.what}"
    who = f"which {' and '.join(wait.holders)} has" if wait.holders else "held, by whom Python does not note"
    return f"{wait.who} waits for {wait.expression} {wait.what}, {who}"


def _named_lines(names: Mapping[str, str]) -> Iterator[str]:
    yield from (f"  {name} = {value}" for name, value in list(names.items())[:_GLOBALS])
    if len(names) > _GLOBALS:
        yield f"  and {len(names) - _GLOBALS} more (--json)"


# -- Node.js -----------------------------------------------------------------------------------------------------------


def _node_lines(state: NodeState) -> Iterator[str]:
    yield f"process {state.process}: Node.js {state.version}"
    yield ""
    yield from _node_frame_lines(state)
    yield ""
    yield "the event loop has"
    kinds = [f"{count} {kind}" for kind, count in sorted(state.active.items(), key=lambda item: -item[1])]
    yield f"  {', '.join(kinds) or 'nothing'}"
    yield from (f"  {one.kind}  {one.about}" for one in state.handles if one.about)
    yield ""
    heap = state.heap
    yield f"heap: {size(heap.used)} used of {size(heap.total)}, at most {size(heap.limit)}"
    spaces = sorted(heap.spaces.items(), key=lambda item: -item[1])
    yield f"  {', '.join(f'{name} {size(used)}' for name, used in spaces if used)}"
    yield f"  beside it {size(heap.external)}, of which {size(heap.array_buffers)} array buffers"
    yield f"  the process has {size(heap.resident)}"
    yield from _node_module_lines(state)
    for worker in state.workers:
        yield ""
        yield from _worker_lines(worker)


def _worker_lines(worker: NodeWorker) -> Iterator[str]:
    yield f"{worker.title}  {worker.file}"
    if worker.is_silent or worker.heap is None:
        yield "it does not answer: it is in native code, or waits without its event loop"
        return
    yield from _node_frame_lines(worker)
    yield f"heap: {size(worker.heap.used)} used of {size(worker.heap.total)}, at most {size(worker.heap.limit)}"
    yield from _node_module_lines(worker)


def _node_frame_lines(state: NodeState | NodeWorker) -> Iterator[str]:
    if state.waits:
        yield "no JavaScript runs: the event loop waits"
    for frame in state.frames:
        yield f"  {frame.function}  {frame.file}:{frame.line}"
        yield from (f"    {name} = {value}" for name, value in frame.locals.items())
    if state.frames_left_out:
        yield f"  and {state.frames_left_out} more frames"


def _node_module_lines(state: NodeState | NodeWorker) -> Iterator[str]:
    for file, names in state.modules.items():
        yield ""
        yield f"names of {file}"
        yield from _named_lines(names)
    if state.modules_left_out:
        yield f"and {state.modules_left_out} more modules"


# -- Java --------------------------------------------------------------------------------------------------------------


def _java_lines(state: JavaState) -> Iterator[str]:
    yield f"process {state.process}: {state.version}"
    for text in state.deadlocks:
        yield ""
        yield "deadlock"
        yield from (f"  {line}" for line in text.splitlines())
    if state.waits:
        yield ""
        yield "who waits for whom"
        for one in state.waits:
            whose = f", which {one.holder} holds" if one.holder is not None else ""
            yield f"  {one.thread} waits for {one.lock}{whose}"
    for thread in state.threads:
        if thread.frames:
            yield ""
            yield from _thread_lines(thread)
    others = [one.name for one in state.threads if not one.frames]
    yield ""
    yield f"threads of the JVM itself: {', '.join(others)}"
    yield ""
    yield "heap"
    yield from (f"  {line}" for line in state.heap)
    yield f"{state.count:,} objects, {size(state.size)}; classes, most bytes first"
    yield from (f"  {size(one.size):>10}  {one.count:>10,}  {one.name}" for one in state.classes)
    if state.classes_left_out:
        yield f"  and {state.classes_left_out} more that take less"
    yield ""
    yield f"flags  {state.flags}"
    yield f"system properties: {len(state.properties)} (--json)"


def _thread_lines(thread: JavaThread) -> Iterator[str]:
    cpu = f", {thread.cpu_ms:.0f} ms of a processor" if thread.cpu_ms is not None else ""
    yield f"thread {thread.name}  {thread.state}{', daemon' if thread.daemon else ''}{cpu}"
    yield from (f"  {line}" for line in thread.frames[:_FRAMES])
    if len(thread.frames) > _FRAMES:
        yield f"  and {len(thread.frames) - _FRAMES} more (--json)"
