"""Stacks of all threads with their locals, and the tasks of asyncio."""

import gc
import sys
import threading

from .names import is_dull, own_globals
from .texts import TEXT_LENGTH, text_of, type_of


def stacks(wanted):
    own = threading.get_ident()
    threads = {one.ident: one for one in list(threading._active.values())}
    found = []
    for ident, frame in sys._current_frames().items():
        thread = threads.get(ident)
        found.append(
            {
                "name": thread.name if thread is not None else str(ident),
                "native": getattr(thread, "native_id", None),
                "frames": _frames(without_ours(frame) if ident == own else frame, wanted["most"]),
            }
        )
    return {"threads": found, "tasks": _tasks(), "globals": own_globals(wanted["most"])}


def without_ours(frame):
    """Without this program's own frames, and that of the pending call in which it runs."""
    while frame is not None and frame.f_code.co_filename == "<relive>":
        frame = frame.f_back
    if (
        frame is not None
        and frame.f_code.co_filename == "<string>"
        and "raise_signal" in frame.f_code.co_names
    ):
        frame = frame.f_back
    return frame


def _frames(frame, most):
    found = []
    while frame is not None and len(found) < most:
        found.append(
            {
                "file": frame.f_code.co_filename,
                "line": frame.f_lineno,
                "function": getattr(frame.f_code, "co_qualname", frame.f_code.co_name),
                "locals": {
                    str(name): text_of(value, TEXT_LENGTH)
                    for name, value in list(frame.f_locals.items())[:100]
                    if not (frame.f_locals is frame.f_globals and is_dull(name, value))
                },
            }
        )
        frame = frame.f_back
    return found


def _tasks():
    """The tasks of asyncio that have not ended: their coroutines from the outermost in, and what the innermost waits for."""
    asyncio = sys.modules.get("asyncio")
    if asyncio is None:
        return []
    found = []
    for task in gc.get_objects():
        if not isinstance(task, asyncio.Task) or task.done():
            continue
        coroutines, one = [], task.get_coro()
        while one is not None and len(coroutines) < 100:
            frame = getattr(one, "cr_frame", None) or getattr(one, "gi_frame", None)
            if frame is None:
                break
            coroutines.append("{} {}:{}".format(one.__name__, frame.f_code.co_filename, frame.f_lineno))
            one = getattr(one, "cr_await", None) or getattr(one, "gi_yieldfrom", None)
        waits = getattr(task, "_fut_waiter", None)
        is_task = isinstance(waits, asyncio.Task)
        found.append(
            {
                "name": task.get_name(),
                "coroutines": coroutines,
                "waits_for": waits.get_name() if is_task else type_of(waits) if waits is not None else None,
            }
        )
    return sorted(found, key=lambda one: one["name"])
