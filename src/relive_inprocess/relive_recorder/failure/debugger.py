"""A debugger in a branch: pdb, spoken to through a unix socket in the branch's directory of rings.

What pdb writes goes over the socket as UTF-8 text; when it wants a line, a byte ``ASK`` (record separator) follows, and a line
is sent back. A record separator in the text itself is sent as an escape. The end of the connection ends the debugger.
"""

import functools
import os
import pdb
import socket
import sys
from types import FrameType
from typing import Any, Callable, Iterator, Optional

from relive_recorder.failure import chain, frames
from relive_recorder.failure.representation import type_name

__all__ = ["ASK", "examine", "stop_in_own_code"]

ASK = "\x1e"


class _Line:
    """Both standard streams of pdb: text out at once, and a question before each line that is read."""

    encoding = "utf-8"

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._lines = connection.makefile("r", encoding="utf-8", errors="replace", newline="\n")

    def write(self, text: str) -> int:
        try:
            self._connection.sendall(text.replace(ASK, "\\x1e").encode("utf-8", "backslashreplace"))
        except OSError:  # nobody listens any more; the next reading ends it
            pass
        return len(text)

    def flush(self) -> None:
        """Nothing is held back."""

    def isatty(self) -> bool:
        return False

    def readline(self, _limit: int = -1) -> str:
        try:
            self._connection.sendall(ASK.encode())
            return self._lines.readline()
        except OSError:
            return ""

    def __iter__(self) -> Iterator[str]:
        return iter(self.readline, "")


class _Debugger(pdb.Pdb):
    """pdb on a line, without the user's .pdbrc (it is the service's user here) and without signal handlers."""

    def __init__(self, line: _Line, *, is_running: bool = False) -> None:
        self.is_looking = is_running  # for the service's own code, and goes on until it is there
        super().__init__(stdin=line, stdout=line, nosigint=True, readrc=False)  # type: ignore[arg-type]
        self.use_rawinput = False
        self.prompt = "(pdb) "

    def setup(self, frame: Optional[FrameType], traceback: Any) -> Any:
        """As pdb's, but in the innermost frame of the service's own code: `down` leads into the library it called."""
        result = super().setup(frame, traceback)
        if traceback is not None:
            own = [index for index, (one, _) in enumerate(self.stack) if _is_services(one)]
            if own:
                self.curindex = own[-1]
                self.curframe = self.stack[own[-1]][0]
                if "curframe_locals" in self.__dict__:  # up to 3.12
                    self.curframe_locals = self.curframe.f_locals
        return result

    def stop_here(self, frame: FrameType) -> bool:
        """While looking, code of libraries is passed by."""
        return _is_services(frame) if self.is_looking else super().stop_here(frame)

    def user_call(self, frame: FrameType, argument_list: Any) -> None:
        """While looking, not at the call but at the first line in it."""
        if not self.is_looking:
            super().user_call(frame, argument_list)

    def user_line(self, frame: FrameType) -> None:
        """It is found."""
        self.is_looking = False
        super().user_line(frame)

    def do_quit(self, arg: str) -> Any:
        """End the debugger; the service goes on in its branch, where it is kept."""
        del arg
        # pdb's own raises BdbQuit out of a traced program, which would fail the request for another reason.
        self._user_requested_quit = True
        self.set_continue()
        return 1

    do_q = do_exit = do_quit

    def do_EOF(self, arg: str) -> Any:
        """The line has ended."""
        return self.do_quit(arg)


def examine(path: str, error: BaseException) -> None:
    """Debug an exception after the fact, in the innermost frame of the service's own code; returns when it ends."""
    with _listening(path) as listener:
        connection, _ = listener.accept()
    with connection:
        line = _Line(connection)
        debugger = _Debugger(line)
        debugger.reset()
        _post_mortem(debugger, error)


def _post_mortem(debugger: _Debugger, error: BaseException) -> None:
    debugger.message(f"{type_name(type(error))} escaped. This is the process itself, as it was then.")
    # From 3.13 on pdb takes the exception itself, and can go along its chain.
    subject: Any = error if sys.version_info >= (3, 13) else chain.traceback_of(error)
    debugger.interaction(None, subject)


def _is_services(frame: FrameType) -> bool:
    name = frame.f_globals.get("__name__", "")
    return frames.is_own(frame) and not str(name).startswith("relive_recorder")


def stop_in_own_code(path: str) -> None:
    """Stop where this thread, or a worker thread it hands on to, next runs code of the service."""
    with _listening(path) as listener:
        connection, _ = listener.accept()
    debugger = _Debugger(_Line(connection), is_running=True)
    _follow_into_workers(debugger)
    debugger.set_trace(sys._getframe())


def _follow_into_workers(debugger: _Debugger) -> None:
    """Tracing belongs to one thread. A synchronous handler of an asynchronous server runs in another, which is handed the work."""

    def handing_on(function: Callable[..., Any]) -> Callable[..., Any]:
        # Before the other thread begins: pdb cannot be in two threads.
        sys.settrace(None)

        @functools.wraps(function)
        def traced(*given: Any, **named: Any) -> Any:
            sys.settrace(debugger.trace_dispatch)
            try:
                return function(*given, **named)
            finally:
                sys.settrace(None)

        return traced

    to_thread = sys.modules.get("anyio.to_thread")
    if to_thread is not None:
        run_sync = to_thread.run_sync

        def run_sync_traced(function: Any, *given: Any, **named: Any) -> Any:
            wrapped = handing_on(function) if debugger.is_looking else function
            return run_sync(wrapped, *given, **named)

        to_thread.run_sync = run_sync_traced  # type: ignore[attr-defined]
    loops = sys.modules.get("asyncio.base_events")
    if loops is not None:
        run_in_executor = loops.BaseEventLoop.run_in_executor

        def run_in_executor_traced(self: Any, executor: Any, function: Any, *given: Any) -> Any:
            wrapped = handing_on(function) if debugger.is_looking else function
            return run_in_executor(self, executor, wrapped, *given)

        loops.BaseEventLoop.run_in_executor = run_in_executor_traced


def _listening(path: str) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    fresh = f"{path}.new"
    listener.bind(fresh)
    listener.listen(1)
    os.rename(fresh, path)  # by the time its name is there it takes connections
    return listener
