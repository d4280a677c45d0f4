"""What the runtime of a commit's process said of itself: stacks with locals, locks, heap, names of modules."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import streamlit as st

from relive.dashboard.look import escape, label, table
from relive.inspection.java.values import JavaState
from relive.inspection.node.values import NodeState
from relive.inspection.python.values import PythonFrame, PythonStacks
from relive.inspection.runtime_state import RuntimeState
from relive.model.quantities import size

__all__ = ["show_runtime"]

_NAMES = 60  # of one module or frame


def show_runtime(told: RuntimeState) -> None:
    """Whichever it is."""
    if told.python is not None:
        _show_python(told.python)
    if told.node is not None:
        _show_node(told.node)
    if told.java is not None:
        _show_java(told.java)


def _show_python(found: PythonStacks) -> None:
    st.caption(f"Process {found.process} runs Python.")
    waits = [[one.who, f"{one.expression} {one.what}", ", ".join(one.holders)] for one in found.waits]
    _table(["who", "waits for", "which is held by"], waits)
    for thread in found.threads:
        st.markdown(f"**{label(thread.name)}**")
        _show_frames(thread.frames)
    for task in found.tasks:
        awaited = ", ".join(task.awaits) or task.waits_for
        st.markdown(label(f"task {task.name}, waits for {awaited}" if awaited else f"task {task.name}"))
        _show_frames(task.frames)
    for module, names in found.globals.items():
        _show_names(module, names)


def _show_frames(frames: Iterable[PythonFrame]) -> None:
    rows = [[f"{one.function}  {one.file}:{one.line}", _joined(one.locals)] for one in frames]
    _table(["frame", "locals"], rows)


def _show_node(found: NodeState) -> None:
    st.caption(label(f"Process {found.process} runs Node.js {found.version}."))
    if found.waits:
        st.info("No JavaScript ran: the event loop waited.")
    frames = [[f"{one.function}  {one.file}:{one.line}", _joined(one.locals)] for one in found.frames]
    _table(["frame", "locals"], frames)
    heap = found.heap
    st.markdown(
        f"{size(heap.used)} of V8's heap are used, at most {size(heap.limit)}; beside it {size(heap.external)}."
    )
    active = [[kind, str(count)] for kind, count in found.active.items()]
    _table(["the event loop has", "how many"], active)
    _table(["handle", "of what"], [[one.kind, one.about] for one in found.handles if one.about])
    for file, names in found.modules.items():
        _show_names(file, names)
    for worker in found.workers:
        st.markdown(f"**{label(worker.title)}**")
        if worker.is_silent:
            st.info("It does not answer: it is in native code, or waits without its event loop.")
        rows = [[f"{one.function}  {one.file}:{one.line}", _joined(one.locals)] for one in worker.frames]
        _table(["frame", "locals"], rows)
        for file, names in worker.modules.items():
            _show_names(file, names)


def _show_java(found: JavaState) -> None:
    st.caption(label(f"Process {found.process}: {found.version}"))
    for text in found.deadlocks:
        st.error(label(text))
    waits = [[one.thread, one.lock, one.holder or ""] for one in found.waits]
    _table(["thread", "waits for", "which is held by"], waits)
    threads = [[one.name, one.state, "\n".join(one.frames)] for one in found.threads if one.state]
    _table(["thread", "state", "stack"], threads)
    classes = [[one.name, f"{one.count:,}", size(one.size)] for one in found.classes]
    _table(["class", "objects", "bytes"], classes)
    _show_names("System properties", found.properties)


def _show_names(title: str, names: Mapping[str, str]) -> None:
    with st.expander(label(title)):
        _table(["name", "value"], [[name, value] for name, value in list(names.items())[:_NAMES]])


def _joined(names: Mapping[str, str]) -> str:
    return "\n".join(f"{name} = {value}" for name, value in list(names.items())[:_NAMES])


def _table(names: list[str], rows: Iterable[list[str]]) -> None:
    lines = [[escape(cell).replace("\n", "<br>") for cell in row] for row in rows]
    if lines:
        st.html(f'<div class="rl">{table(names, lines)}</div>')
