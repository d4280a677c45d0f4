"""The standard streams of a command, as whoever started it left them: full, closed, or without a reader.

An answer that is lost ends the command with an error. Remarks that are lost change nothing, least of all its exit status.
"""

from __future__ import annotations

import contextlib
import io
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from relive.errors import OutputLost

__all__ = ["prepare_streams", "written"]

_INPUT, _OUTPUT, _REMARKS = 0, 1, 2


class _Answers(io.TextIOWrapper):
    """Standard output, for whoever writes to it: also libraries that print a help page."""

    def write(self, text: str, /) -> int:
        with written():
            return super().write(text)

    def flush(self) -> None:
        with written():
            super().flush()


class _Remarks(io.TextIOWrapper):
    """Standard error, which takes everything."""

    def write(self, text: str, /) -> int:
        with contextlib.suppress(OSError):
            super().write(text)
        return len(text)

    def flush(self) -> None:
        with contextlib.suppress(OSError):
            super().flush()


def prepare_streams() -> None:
    """To be called before anything is done, once in a process.

    Raises:
        OutputLost: standard output is closed. The next file that is opened would get its number, and the answer.
    """
    for number in (_INPUT, _REMARKS):
        _occupy(number)
    sys.stderr = _Remarks(_bytes_to(_REMARKS)) if sys.stderr is None else _made(_Remarks, sys.stderr)
    if sys.stdout is None:
        _occupy(_OUTPUT)
        sys.stdout = _Answers(_bytes_to(_OUTPUT))
        raise OutputLost(
            "standard output is closed",
            cause="whoever started this command closed it",
            remedy="nothing was done; give it an output, such as >/dev/null",
        )
    sys.stdout = _made(_Answers, sys.stdout)


def _occupy(number: int) -> None:
    """A number that is free would be that of a file which Relive opens, and a child would write its remarks into that."""
    try:
        os.fstat(number)
    except OSError:
        nothing = os.open(os.devnull, os.O_RDWR)
        if nothing != number:
            os.dup2(nothing, number)
            os.close(nothing)


def _bytes_to(number: int) -> BinaryIO:
    return open(number, "wb", closefd=False)


def _made(kind: type[io.TextIOWrapper], stream: Any) -> Any:
    """Any bytes may be in what is written: file names hold them."""
    if type(stream) is not io.TextIOWrapper:  # somebody else's already
        return stream
    return kind(
        stream.buffer,
        encoding=stream.encoding,
        errors="backslashreplace",
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )


@contextlib.contextmanager
def written() -> Iterator[None]:
    """The block writes to standard output.

    Raises:
        OutputLost: that does not take it. A reader that has gone away ends the program as SIGPIPE would, as ``head`` expects.
    """
    try:
        yield
    except BrokenPipeError:
        _discard_output()
        sys.exit(128 + signal.SIGPIPE)
    except OSError as error:
        _discard_output()
        raise OutputLost(
            "the answer could not be written to standard output",
            cause=error.strerror,
            remedy="what was asked for is done; ask again with an output that takes the answer",
        ) from error


def _discard_output() -> None:
    """Python flushes what is left in the buffer when it ends, and would say that this failed."""
    with Path(os.devnull).open("wb") as nothing:
        os.dup2(nothing.fileno(), sys.stdout.fileno())
