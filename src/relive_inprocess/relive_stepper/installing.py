"""Installing the trace function: in threads that run, in those to come, and in the frames of own code that stand already."""

import sys
import threading

from .places import standing_frames
from .refusal import Refused, message_of

_KEPT = []  # what C calls must live


def install(follower):
    """Have all threads call ``follower.on_call`` from now on."""
    threading.settrace(follower.on_call)
    for frame in standing_frames():
        if follower.traced(frame.f_code.co_filename) is not None:
            frame.f_trace = follower.of_frame(frame)
    if hasattr(threading, "settrace_all_threads"):  # from 3.12 on
        threading.settrace_all_threads(follower.on_call)
    else:
        _install_in_threads(follower)


def _install_in_threads(follower):
    """Each thread is given a function in C that makes it trace itself at whatever it does next.

    ``sys.settrace`` is for the calling thread alone, and the function behind it, which takes another, wants one in C.
    """
    try:
        import ctypes

        api = ctypes.pythonapi
        set_trace = api._PyEval_SetTrace
    except (ImportError, AttributeError) as error:
        raise Refused(
            "the service's Python cannot be followed line by line",
            message_of(error),
            "it takes CPython 3.9 or later, before 3.12 with ctypes",
        ) from error
    pointer = ctypes.c_void_p
    is_call = 0  # PyTrace_CALL

    def begin(_self, _frame, what, _argument):
        sys.settrace(follower.on_call)
        if what == is_call:
            frame = sys._getframe(1)
            frame.f_trace = follower.on_call(frame, "call", None)
        return 0

    hook = ctypes.CFUNCTYPE(ctypes.c_int, pointer, pointer, ctypes.c_int, pointer)(begin)
    _KEPT.append(hook)
    set_trace.argtypes, set_trace.restype = [pointer, pointer, pointer], ctypes.c_int
    for name in ("PyInterpreterState_Main", "PyInterpreterState_ThreadHead", "PyThreadState_Next"):
        getattr(api, name).restype = pointer
        getattr(api, name).argtypes = [pointer] if name != "PyInterpreterState_Main" else []
    thread = api.PyInterpreterState_ThreadHead(api.PyInterpreterState_Main())
    while thread:
        if set_trace(thread, ctypes.cast(hook, pointer), None) != 0:
            raise Refused("a thread of the service cannot be followed", None, "see the service's audit hooks")
        thread = api.PyThreadState_Next(thread)
