"""``python -m relive.operations NAME [DESCRIPTOR]``: the process of ``subprocess_runner``, for one operation.

From the descriptor it reads what it is told while it goes on, as lines of JSON.
"""

from __future__ import annotations

import fcntl
import json
import os
import select
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from pydantic import BaseModel, ValidationError

from relive.config import load_settings
from relive.errors import ReliveError, UsageError, reason_of
from relive.operations.catalogue import OPERATIONS
from relive.operations.operation import Operation, Params
from relive.operations.unforeseen import unforeseen

__all__ = ["main"]

_F_SETSIG = 10  # linux/fcntl.h; Python's module has it only from 3.12 on every build


class _Line:
    """Writes what happens as lines; a ``Progress``."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def say(self, **message: Any) -> None:
        """Write one line; a caller who is gone is noticed by the signal."""
        rest = memoryview(json.dumps(message).encode() + b"\n")
        while rest:
            rest = rest[os.write(self._descriptor, rest) :]

    @contextmanager
    def progress(self, what: str, total: int) -> Iterator[Callable[[int], None]]:
        """As ``Progress``."""
        self.say(begun=what, total=total, unit="steps")
        yield lambda done: self.say(done=done)

    @contextmanager
    def transfer(self, what: str, total: int) -> Iterator[Callable[[int], None]]:
        """As ``Progress``."""
        self.say(begun=what, total=total, unit="bytes")
        yield lambda done: self.say(done=done)

    def status(self, text: str) -> None:
        """As ``Progress``."""
        self.say(told=text)

    def show(self, view: BaseModel) -> None:
        """As ``Conversation``."""
        self.say(shown=view.model_dump(mode="json"))


class _Talk(_Line):
    """The caller's commands, too; a ``Conversation``."""

    def __init__(self, descriptor: int, commands: int) -> None:
        super().__init__(descriptor)
        self._commands = os.fdopen(commands, "rb", buffering=0)

    def commands(self, silence: float) -> Iterator[str]:
        """As ``Conversation``."""
        while select.select([self._commands], [], [], silence)[0] and (line := self._commands.readline()):
            yield json.loads(line)


def _give_up(_number: int, _frame: FrameType | None) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # once: taking back must not be interrupted
    raise KeyboardInterrupt


def _end_with_caller() -> None:
    """SIGTERM when the other end of standard input is closed."""
    signal.signal(signal.SIGTERM, _give_up)
    fcntl.fcntl(0, _F_SETSIG, signal.SIGTERM)
    fcntl.fcntl(0, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(0, fcntl.F_SETFL, fcntl.fcntl(0, fcntl.F_GETFL) | os.O_ASYNC)
    if select.select([0], [], [], 0)[0]:  # closed before
        sys.exit(130)


def _performed(operation: Operation[Any, Any], params: Params, line: _Line) -> BaseModel:
    if isinstance(line, _Talk):
        assert operation.converse is not None
        result = operation.converse(load_settings(), params, line, line)
    else:
        result = operation.run(load_settings(), params, line)
    assert isinstance(result, BaseModel)
    return result


def main() -> None:
    """Do it; exit status 0 where the last line is a result."""
    operation = OPERATIONS[sys.argv[1]]
    params_line = sys.stdin.buffer.readline()
    # What is started from here writes to no protocol: only the copy of standard output is.
    line = _Talk(os.dup(1), int(sys.argv[2])) if len(sys.argv) > 2 else _Line(os.dup(1))
    with Path(os.devnull).open("r+b") as nowhere:
        os.dup2(nowhere.fileno(), 1)
    _end_with_caller()
    try:
        params = operation.params.model_validate_json(params_line)
    except ValidationError as error:
        line.say(error=UsageError(f"{operation.name}: {reason_of(error.errors()[0]['msg'])}").as_json())
        sys.exit(1)
    except ReliveError as error:  # of a word that stands for nothing
        line.say(error=error.as_json())
        sys.exit(1)
    try:
        result = _performed(operation, params, line)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # from here on it is done
        line.say(result=result.model_dump(mode="json"))
    except ReliveError as error:
        line.say(error=error.as_json())
        sys.exit(1)
    except (KeyboardInterrupt, BrokenPipeError):
        sys.exit(130)
    except PermissionError as error:
        if os.geteuid() == 0:
            raise  # a defect: its traceback is for the log
        line.say(error=unforeseen(error).as_json())
        sys.exit(1)


if __name__ == "__main__":
    main()
