"""Stacks of all threads with their locals."""

import sys
import threading

from .names import is_dull
from .texts import TEXT_LENGTH, text_of


def stacks(wanted):
    """Of each thread its name, and its frames with locals, innermost first.

    Without a thread of a C library that runs nothing but this program: it became one of Python's to be asked.
    """
    own = threading.get_ident()
    threads = {one.ident: one for one in list(threading._active.values())}
    found = []
    for ident, innermost in sys._current_frames().items():
        thread = threads.get(ident)
        frame = without_ours(innermost) if ident == own else innermost
        if frame is None and thread is None:
            continue
        found.append(
            {
                "name": thread.name if thread is not None else str(ident),
                "native": getattr(thread, "native_id", None),
                "frames": _frames(frame, wanted["most"]),
            }
        )
    return found


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
        found.append(frame_told(frame))
        frame = frame.f_back
    return found


def frame_told(frame):
    return {
        "file": frame.f_code.co_filename,
        "line": frame.f_lineno,
        "function": getattr(frame.f_code, "co_qualname", frame.f_code.co_name),
        "locals": {
            str(name): text_of(value, TEXT_LENGTH)
            for name, value in list(frame.f_locals.items())[:100]
            if not (frame.f_locals is frame.f_globals and is_dull(name, value))
        },
    }


def stack_of(frame):
    """The frames from this one out."""
    while frame is not None:
        yield frame
        frame = frame.f_back
