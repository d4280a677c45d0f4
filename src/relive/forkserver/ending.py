"""How a fork ends: as Python ends a process, but for taking apart what was imported.

For that, Python writes to nearly every object, and a fork shares most of them with its server: the kernel would copy page after
page, 40 ms of CPU, only to throw them away. What others can see of an end is the same: threads are waited for, exit functions run,
what was written is in its file or stream, databases are closed, and the exit status is Python's own. Objects are not finalized
(``__del__``), as when ``multiprocessing`` ends a fork.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import io
import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import NoReturn

from relive.forkserver.successor import report_exit

__all__ = ["run_and_end"]

_STREAM_LOST = 120  # Python's exit status where its streams could not be flushed (Py_FinalizeEx)
_WRITERS = (io.BufferedWriter, io.BufferedRandom, io.TextIOWrapper)


def run_and_end(run: Callable[[], int | None]) -> NoReturn:
    """Run it, and end this process with what it returns or raises, as ``sys.exit(run())`` would at the end of a program.

    Who asked for this process is told its status, as the server may be gone that would tell it.
    """
    is_interrupted = False
    try:
        status = run() or 0
    except SystemExit as end:
        status = _status_of(end)
    except BaseException as error:
        sys.excepthook(*sys.exc_info())
        status, is_interrupted = 1, isinstance(error, KeyboardInterrupt)
    # As multiprocessing ends a fork; the exit functions print what they raise.
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    if not _flushed_streams():
        status = _STREAM_LOST
    _close_what_is_open()
    if is_interrupted:  # who waits shall see that it ended of the signal
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    report_exit(status & 0xFF)
    os._exit(status & 0xFF)


def _status_of(end: SystemExit) -> int:
    if end.code is None or isinstance(end.code, int):
        return end.code or 0
    print(end.code, file=sys.stderr)  # noqa: T201 - as Python does
    return 1


def _flushed_streams() -> bool:
    is_flushed = True
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None and not stream.closed:
                stream.flush()
        except (OSError, ValueError) as error:
            if stream is sys.stdout:
                print(f"Exception ignored in: {stream!r}\n{type(error).__name__}: {error}", file=sys.stderr)  # noqa: T201
                is_flushed = False
    return is_flushed


def _close_what_is_open() -> None:
    """Files that were left open have what was written to them, and databases are as after their last connection's end."""
    sqlite3 = sys.modules.get("sqlite3")
    connection = sqlite3.Connection if sqlite3 is not None else None
    # Those of before the fork are not among them (``gc.freeze``).
    for one in gc.get_objects():
        kind = type(one)
        with contextlib.suppress(Exception):
            if issubclass(kind, _WRITERS):
                one.flush()
            elif connection is not None and issubclass(kind, connection):
                one.close()
