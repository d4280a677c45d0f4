"""An operation done in a process of its own, for faces that have threads.

CRIU and namespaces want a process with one thread, and a server must outlive what goes wrong in them. The process gets its params
as one JSON line on standard input, and writes JSON lines:

    {"begun": WHAT, "total": N, "unit": "steps" | "bytes"}, {"done": N}, {"told": TEXT}, {"shown": VIEW},
    and at last {"result": VALUE} or {"error": {"code", "message", "cause", "remedy"}}.

Standard input stays open for as long as the caller lives and wants the result; when it is closed, also because the caller was
killed, the process is sent SIGTERM by the kernel (fcntl(2), F_SETSIG) and takes back what it has begun.

One that is talked to has its commands from a pipe of their own, as JSON lines, and shows a view for each.

It is forked from the fork server where that can be (``relive.forkserver``): importing takes longer than most operations.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, BinaryIO, TypeVar

import structlog
from pydantic import BaseModel

from relive.config import Settings, store_key_variable
from relive.errors import Cancelled, ReliveError
from relive.forkserver.starting import StartedProcess, start_module
from relive.kernel.children import wait_or_kill
from relive.operations.operation import Operation, Params
from relive.operations.progress import Progress, Silent

__all__ = ["Talk", "perform_apart"]

W = TypeVar("W", bound=Params)
R = TypeVar("R", bound=BaseModel)
_NOTHING = Silent()
_TAIL = 4096  # [bytes] of what its process said last
_PATIENCE = 30.0  # [s] for taking back what was begun, before it is killed


@dataclass(frozen=True, slots=True)
class Talk:
    """``commands``: a descriptor to read them from; ``shown`` is called with each view."""

    commands: int
    shown: Callable[[dict[str, Any]], None]


def perform_apart(
    operation: Operation[W, R],
    settings: Settings,
    params: W,
    progress: Progress = _NOTHING,
    *,
    cancel: threading.Event | None = None,
    started: Callable[[int], None] = lambda _pid: None,
    is_first: bool = True,
    talk: Talk | None = None,
) -> R:
    """Have it done, and wait for it; safe in any thread.

    Args:
        progress: called in this thread.
        cancel: when it is set, the work is given up within a moment.
        started: called with the pid of the process before that is told what to do; what it raises ends the process undone.
        is_first: nothing of it can have been done before. What it names must then be there; else it may have been needed no more.
        talk: with it, of an operation that can converse; None: its ``run`` is called.

    Raises:
        ReliveError: as the operation does, of the same class; Cancelled.
    """
    if is_first and operation.look_up is not None:
        operation.look_up(settings, params)
    with tempfile.TemporaryFile() as said:
        with (
            _started(operation.name, settings, said.fileno(), talk) as apart,
            _Canceller(apart.process, cancel),
        ):
            try:
                started(apart.process.pid)
                last = _talk(apart, params, progress, talk)
            except BaseException:  # of who listens, say that it was cancelled
                _end(apart.process)
                raise
        if "result" in last:
            return operation.result.model_validate(last["result"])
        if cancel is not None and cancel.is_set():
            raise Cancelled(f"{operation.name} was cancelled")
        if "error" in last:
            raise ReliveError.from_json(last["error"])
        said.seek(max(0, said.tell() - _TAIL))
        # Not told to who asked: a traceback may hold what it must not.
        structlog.get_logger().error(
            "operation died", operation=operation.name, said=said.read().decode(errors="replace")
        )
        raise ReliveError(
            f"{operation.name} ended without a result",
            cause=f"its process ended with status {apart.process.poll()}; the log says what it said last",
            remedy="try it again; if it stays so, it is a bug of Relive",
        )


@dataclass(frozen=True, slots=True)
class _Apart:
    """The process of an operation, and our ends of the pipes to it."""

    process: StartedProcess
    stdin: BinaryIO
    stdout: BinaryIO


@contextmanager
def _started(operation: str, settings: Settings, said: int, talk: Talk | None) -> Iterator[_Apart]:
    """Within, its process; when that is left, its standard input is closed, and it has ended.

    Args:
        said: a descriptor that becomes its standard error.
        talk: whose descriptor it has under the same number.
    """
    with ExitStack() as ours:
        asks, stdin = _pipe(ours)
        stdout, tells = _pipe(ours)
        process = start_module(
            "relive.operations",
            [operation, *([str(talk.commands)] if talk is not None else [])],
            streams=(asks.fileno(), tells.fileno(), said),
            handed=[talk.commands] if talk is not None else [],
            environment=_environment(settings),
            may_fork=settings.fork_server,
        )
        asks.close()
        tells.close()
        try:
            yield _Apart(process, stdin, stdout)
        finally:
            ours.close()
            process.wait()


def _pipe(held: ExitStack) -> tuple[BinaryIO, BinaryIO]:
    reading, writing = os.pipe()
    return held.enter_context(os.fdopen(reading, "rb")), held.enter_context(os.fdopen(writing, "wb"))


def _end(process: StartedProcess) -> None:
    """Have what it began taken back, and kill it where that takes too long."""
    process.terminate()
    wait_or_kill(process, _PATIENCE)


def _environment(settings: Settings) -> dict[str, str]:
    named = {"RELIVE_HOME": str(settings.home), "RELIVE_TOOLS": str(settings.tools_path)}
    if settings.mark is not None:
        named["RELIVE_MARK"] = settings.mark
    return {**os.environ, **named, **store_key_variable()}


def _talk(process: _Apart, params: Params, progress: Progress, talk: Talk | None) -> dict[str, Any]:
    """Say what is asked, and render what is said until the last word; empty where there was none."""
    try:
        process.stdin.write(params.model_dump_json().encode() + b"\n")
        process.stdin.flush()
    except BrokenPipeError:  # it has ended, and said why
        with contextlib.suppress(BrokenPipeError):  # what is in the buffer is tried once more
            process.stdin.close()
    with ExitStack() as shown:
        advance: Callable[[int], None] | None = None
        for line in process.stdout:  # not to its end: a branch's page daemon may hold it open
            message = json.loads(line)
            if "begun" in message:
                shown.close()
                begin = progress.transfer if message["unit"] == "bytes" else progress.progress
                advance = shown.enter_context(begin(message["begun"], message["total"]))
            elif "done" in message and advance is not None:
                advance(message["done"])
            elif "told" in message:
                progress.status(message["told"])
            elif "shown" in message and talk is not None:
                talk.shown(message["shown"])
            else:
                return dict(message)
    return {}


class _Canceller:
    """While entered: when the event is set, the process is asked to take back what it does, and killed when it does not."""

    def __init__(self, process: StartedProcess, cancel: threading.Event | None) -> None:
        self._process, self._cancel = process, cancel
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._wait, daemon=True)

    def _wait(self) -> None:
        assert self._cancel is not None
        while not self._over.is_set():
            if self._cancel.wait(0.2):
                self._process.terminate()
                if not self._over.wait(_PATIENCE):
                    self._process.kill()
                return

    def __enter__(self) -> _Canceller:
        if self._cancel is not None:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        if self._cancel is not None:
            self._thread.join()
