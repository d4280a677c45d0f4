"""Having the interpreter of a living process answer a question: a small program is run in it, and its answer, bytes, is read.

It runs in a thread that waits in a system call: there the interpreter's lock is not held and no lock of the allocator either. Where
all threads compute, the main thread comes to a safe place by a pending call (``Py_AddPendingCall``), in which it signals itself.
A process that is stopped, as one is that was committed before a fatal signal, is asked in the thread that holds the
interpreter's lock, if one does: nobody else would ever get it. The other threads run on then, since who holds the lock lets others
have it in between.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import relive_inprocess.relive_inspector as inspector
from relive.errors import UsageError
from relive.inspection.python.calling import CallDied, StoppedThread
from relive.inspection.python.program_text import program_text
from relive.inspection.python.symbols import interpreter_functions
from relive.kernel import procfs

__all__ = ["InterpreterEnded", "ask", "is_python"]

_FUNCTIONS = (
    "Py_IsInitialized",
    *("PyGILState_Ensure", "PyGILState_Check", "PyBytes_FromStringAndSize", "PyBytes_AsString"),
    *("PyBytes_Size", "PyDict_New"),
    *(
        "PyDict_SetItemString",
        "PyDict_GetItemString",
        "PyEval_GetBuiltins",
        "Py_CompileString",
        "PyEval_EvalCode",
    ),
    *("PyGILState_Release", "Py_AddPendingCall", "PyRun_SimpleString"),
)
_C_INT = 0xFFFFFFFF  # the part of rax that a function sets which returns int
_WHOLE_FILE = 257  # Py_file_input
_SEEN = 0.3  # [s] for a thread to come to a system call
_POLL = 0.01  # [s]
# Its number, and the place of its time limit among the words of proc_pid_syscall(5).
_FUTEX, _FUTEX_TIMEOUT = "202", 4
_ASLEEP = 0.05  # [s] in which who waits for the interpreter's lock wakes several times
_MOST = 64 << 20  # [bytes] of an answer
_STOP = b"import signal; signal.raise_signal(signal.SIGTRAP)\0"


class InterpreterEnded(CallDied):
    """The process exits, and has taken its interpreter apart: whatever else it were asked would kill it."""

    def __init__(self) -> None:
        super().__init__(0)


def is_python(pid: int) -> bool:
    """A process runs a CPython whose functions can be found."""
    return interpreter_functions(pid, _FUNCTIONS) is not None


def ask(pid: int, question: Mapping[str, Any], limit: float, program: ModuleType = inspector) -> Any:
    """The answer of a program's ``answer`` in that process, as JSON's values.

    Args:
        limit: seconds.
        program: its text (``program_text``) is compiled there; its ``answer`` takes JSON and gives bytes of JSON.

    Raises:
        UsageError: it runs no CPython.
        CallLate, CallDied: it took longer; the process died of it.
        InterpreterEnded: there is nobody left to ask.
    """
    functions = interpreter_functions(pid, _FUNCTIONS)
    if functions is None:
        raise UsageError(
            f"process {procfs.innermost_pid(pid)} ({procfs.name_of(pid)}) can be asked no Python expression",
            cause="it runs no CPython whose functions can be found",
            remedy="name another with --process; `relive inspect` lists them",
        )
    until = time.monotonic() + limit
    # Asked once: a thread that _holder lets go of takes a moment until it is stopped again.
    is_stopped = procfs.is_stopped(pid)
    tid = _holder(pid, functions["PyGILState_Check"], until) if is_stopped else None
    if tid is None:
        tid = _waiting_thread(pid, min(until, time.monotonic() + _SEEN))
    with StoppedThread(pid, tid if tid is not None else pid, until) as thread:
        if is_stopped:
            os.kill(pid, signal.SIGCONT)
        if not thread.call(functions["Py_IsInitialized"]) & _C_INT:
            raise InterpreterEnded
        if tid is None:
            _come_to_safety(thread, functions)
        return json.loads(_answer(thread, functions, program, json.dumps(question)))


def _holder(pid: int, check: int, until: float) -> int | None:
    """The thread that holds the interpreter's lock; ``check`` says so of the thread that calls it, and waits for nothing."""
    for tid in procfs.threads_of(pid):
        with StoppedThread(pid, tid, until) as thread:
            if thread.call(check):
                return tid
    return None


def _waiting_thread(pid: int, until: float) -> int | None:
    """The main thread if it waits for something outside, else another that does, else one that waits for a lock.

    Who waits for the interpreter's own lock does not count: it is within a wait for a condition, of which glibc
    (``__condvar_quiesce_and_switch_g1``) lets no other thread signal the next one before it has come out. It wakes every few
    milliseconds (``sys.getswitchinterval``), so one that sleeps on is none.
    """
    asleep: dict[int, tuple[str, float]] = {}
    while True:
        now = time.monotonic()
        calls = {tid: _call_of(pid, tid) for tid in procfs.threads_of(pid)}
        waiting = [tid for tid, call in calls.items() if call and call[0] not in ("running", "-1", _FUTEX)]
        if waiting:
            return waiting[0]
        locked = {tid: call for tid, call in calls.items() if call and call[0] == _FUTEX}
        switches = {tid: _switches_of(pid, tid) for tid in locked}
        asleep = {
            tid: asleep[tid] if tid in asleep and asleep[tid][0] == count else (count, now)
            for tid, count in switches.items()
        }
        for tid, call in locked.items():
            if call[_FUTEX_TIMEOUT] == "0x0" or now - asleep[tid][1] >= _ASLEEP:
                return tid
        if now > until:
            return None
        time.sleep(_POLL)


def _call_of(pid: int, tid: int) -> list[str]:
    """The words of ``/proc/PID/task/TID/syscall`` (proc_pid_syscall(5)): its number and arguments; none when it is gone."""
    try:
        return Path(f"/proc/{pid}/task/{tid}/syscall").read_text().split()
    except OSError:
        return []


def _switches_of(pid: int, tid: int) -> str:
    """Changes whenever the thread has run."""
    try:
        status = Path(f"/proc/{pid}/task/{tid}/status").read_text()
    except OSError:
        return ""
    return status.partition("voluntary_ctxt_switches:")[2]


def _come_to_safety(thread: StoppedThread, functions: Mapping[str, int]) -> None:
    thread.call(functions["Py_AddPendingCall"], functions["PyRun_SimpleString"], thread.far_below(_STOP))
    thread.go_on(signal.SIGTRAP)


def _answer(thread: StoppedThread, functions: Mapping[str, int], program: ModuleType, question: str) -> bytes:
    def call(name: str, *arguments: int) -> int:
        return thread.call(functions[name], *arguments)

    def text(value: str) -> int:
        data = value.encode() + b"\0"
        held = call("PyBytes_FromStringAndSize", 0, len(data))
        place = call("PyBytes_AsString", held)
        thread.write(place, data)
        return place

    before = call("PyGILState_Ensure")
    source = f"{program_text(program)}\nANSWER = answer({question!r})\n"
    code = call("Py_CompileString", text(source), text("<relive>"), _WHOLE_FILE)
    names = call("PyDict_New")
    call("PyDict_SetItemString", names, text("__builtins__"), call("PyEval_GetBuiltins"))
    if code == 0 or call("PyEval_EvalCode", code, names, names) == 0:
        return b'{"failed": "the interpreter could not run what was to look at it"}'
    found = call("PyDict_GetItemString", names, text("ANSWER"))
    size = call("PyBytes_Size", found)
    content = thread.read(call("PyBytes_AsString", found), min(size, _MOST))
    call("PyGILState_Release", before)
    return content
