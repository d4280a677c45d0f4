"""The tasks of asyncio: their coroutines with locals, and which task awaits which."""

import functools
import gc
import sys

from .stacks import frame_told
from .texts import type_of

_WITH_LOCALS = 1000  # tasks


def tasks():
    """The tasks that have not ended: their coroutines from the outermost in, and what the innermost waits for."""
    asyncio = sys.modules.get("asyncio")
    if asyncio is None:
        return []
    pending = [one for one in gc.get_objects() if isinstance(one, asyncio.Task) and not one.done()]
    enders, found = _enders(pending), []
    for task in pending:
        coroutines, frames = [], coroutine_frames(task)
        for one, frame in frames:
            coroutines.append("{} {}:{}".format(one.__name__, frame.f_code.co_filename, frame.f_lineno))
        waits = getattr(task, "_fut_waiter", None)
        is_task = isinstance(waits, asyncio.Task)
        found.append(
            {
                "name": task.get_name(),
                "coroutines": coroutines,
                # As of threads, the innermost first.
                "frames": [frame_told(frame) for _, frame in reversed(frames)]
                if len(found) < _WITH_LOCALS
                else [],
                "waits_for": waits.get_name() if is_task else type_of(waits) if waits is not None else None,
                "awaits": sorted(
                    {task.get_name() for task in enders.get(id(waits), ())} if waits is not None else ()
                ),
            }
        )
    return sorted(found, key=lambda one: one["name"])


def coroutine_frames(task):
    """[(coroutine, frame)] of a task, the outermost first; the recorder's, which is in C, has no frame."""
    found, one = [], task.get_coro()
    while one is not None and len(found) < 100:
        frame = getattr(one, "cr_frame", None) or getattr(one, "gi_frame", None)
        if frame is not None:
            found.append((one, frame))
        one = getattr(one, "cr_await", None) or getattr(one, "gi_yieldfrom", None)
    return found


def _enders(pending):
    """By a future's identity the tasks that end it: itself, or those whose ends ``gather``, a task group or ``wait`` pass on."""
    found = {id(task): [task] for task in pending}
    for task in pending:
        for one in getattr(task, "_callbacks", None) or ():
            for held in _held_by(one[0] if isinstance(one, tuple) else one):
                if hasattr(held, "add_done_callback"):
                    found.setdefault(id(held), []).append(task)
    return found


def _held_by(callback):
    """What a callback has in its arguments, its closure, or as an attribute of what it is a method of."""
    held = []
    if isinstance(callback, functools.partial):
        held += callback.args
        callback = callback.func
    for cell in getattr(callback, "__closure__", None) or ():
        try:
            held.append(cell.cell_contents)
        except ValueError:  # it is empty
            continue
    owner = getattr(callback, "__self__", None)
    held.append(owner)
    held += getattr(owner, "__dict__", {}).values()
    return held
