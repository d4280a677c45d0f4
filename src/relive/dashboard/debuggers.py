"""Debuggers that were opened on pages: each goes forward and back through one incident's request, in a process of its own.

As a job it belongs to the dashboard, not to a page: whoever opens the incident's debugger sees the same one. It ends when it is
told to, after half an hour without a command, and with the dashboard, however that ends: then its commands' pipe is closed.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from relive.config import Settings
from relive.errors import Cancelled, ReliveError, UsageError
from relive.operations.debugging import DEBUG, DebugParams
from relive.operations.progress import Silent
from relive.operations.subprocess_runner import Talk, perform_apart
from relive.stepping.view import SteppingView

__all__ = ["DEBUGGERS", "Debugger", "Debuggers", "Standing"]

_MOST_OPEN = 4  # each has up to three branches
_ENDING = "end"  # as a command that runs
_PATIENCE = 1.5  # [s] that a page waits for a command, before it says that it still runs


@dataclass(frozen=True, slots=True)
class Standing:
    """A debugger as it is now.

    Attributes:
        view: after the last command; None: it has not come to the failure yet, or has ended.
        doing: the command that runs; None: it waits for one.
        message: what it said last beside the answers. has_ended: by itself or by ``end``.
        error: it could not begin, or has died.
    """

    view: SteppingView | None = None
    doing: str | None = "begin"
    message: str = ""
    has_ended: bool = False
    error: ReliveError | None = None


class Debugger(Silent):
    """One of an incident; safe in any thread. It begins at once."""

    def __init__(self, settings: Settings, number: int) -> None:
        self._settings, self._number = settings, number
        self._changed = threading.Condition()
        self._standing = Standing()
        self._cancel = threading.Event()
        self._reading, self._writing = os.pipe()
        threading.Thread(target=self._perform, name=f"relive-debugger-{number}", daemon=True).start()

    def standing(self) -> Standing:
        """As it is now."""
        with self._changed:
            return self._standing

    def say(self, command: str, patience: float = _PATIENCE) -> None:
        """Give it a command, and wait so many seconds for the answer; nothing where it has ended, or another command runs."""
        with self._changed:
            if self._standing.has_ended or self._standing.doing is not None:
                return
            self._change(doing=command)
            with contextlib.suppress(OSError):  # its process has ended, which is told in a moment
                os.write(self._writing, json.dumps(command).encode() + b"\n")
        self.wait(patience)

    def wait(self, patience: float = _PATIENCE) -> None:
        """Until no command runs, or so many seconds."""
        with self._changed:
            self._changed.wait_for(lambda: self._standing.doing is None, patience)

    def end(self) -> None:
        """Have its branches removed. May be called again."""
        with self._changed:
            self._cancel.set()
            if not self._standing.has_ended:
                self._change(doing=_ENDING)

    def await_end(self, patience: float = 5.0) -> None:
        """Until it has ended, or so many seconds."""
        with self._changed:
            self._changed.wait_for(lambda: self._standing.has_ended, patience)

    def status(self, text: str) -> None:
        """As ``Progress``."""
        with self._changed:
            self._change(message=text)

    def _perform(self) -> None:
        error: ReliveError | None = None
        try:
            params = DebugParams(number=self._number, step=True)
            talk = Talk(self._reading, self._shown)
            perform_apart(DEBUG, self._settings, params, self, cancel=self._cancel, talk=talk)
        except Cancelled:
            pass
        except ReliveError as found:
            error = found
        except Exception as found:  # what nobody foresaw is shown, not lost with the thread
            error = ReliveError("the debugger has ended", cause=repr(found))
        with self._changed:
            os.close(self._reading)
            os.close(self._writing)  # nobody writes there once it has ended
            self._change(has_ended=True, doing=None, view=None, error=error)

    def _shown(self, view: dict[str, Any]) -> None:
        with self._changed:
            doing = _ENDING if self._cancel.is_set() else None
            self._change(view=SteppingView.model_validate(view), doing=doing)

    def _change(self, **what: Any) -> None:
        self._standing = replace(self._standing, **what)
        self._changed.notify_all()


class Debuggers:
    """All of a process, by home and incident; safe in any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: dict[tuple[Path, int], Debugger] = {}

    def of(self, home: Path, number: int) -> Debugger | None:
        """That of an incident, also one that has ended; None: none was opened."""
        with self._lock:
            return self._open.get((home, number))

    def begin(self, settings: Settings, number: int) -> Debugger:
        """Open one, if none goes on.

        Raises:
            UsageError: too many go on.
        """
        with self._lock:
            found = self._open.get((settings.home, number))
            if found is not None and not found.standing().has_ended:
                return found
            others = [at for (_, at), one in self._open.items() if not one.standing().has_ended]
            if len(others) >= _MOST_OPEN:
                raise UsageError(
                    f"{len(others)} debuggers are open already",
                    cause="each keeps up to three branches with the memory of the service",
                    remedy=f"end one of those of incidents {', '.join(map(str, sorted(others)))}",
                )
            made = self._open[(settings.home, number)] = Debugger(settings, number)
            return made


DEBUGGERS = Debuggers()
