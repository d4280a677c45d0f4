"""The only module that writes to the terminal: answers to stdout; status, hints, errors and progress to stderr.

With ``--json`` an answer is one JSON object or array on stdout, and an error is ``{"error": {code, message, cause, remedy}}``
there too.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import IO, Annotated, Any

import typer
from pydantic import BaseModel

from relive.cli.streams import written
from relive.cli.table import table_lines
from relive.errors import OutputLost, ReliveError
from relive.model.text import STEERING, printable

__all__ = ["AsJson", "Terminal"]

AsJson = Annotated[bool, typer.Option("--json", help="Answer in JSON")]
# Bell, backspace and what moves the cursor within a line are left out; what else would steer a terminal is written as an escape.
_ACTING = dict.fromkeys((7, 8, 11, 12, 13))
_PIPE_WIDTH = 100_000  # [characters] nothing is folded or cut there


class Terminal:
    """What a command speaks through."""

    def __init__(self, *, as_json: bool = False) -> None:
        self.as_json = as_json

    def answer(self, value: Any, text: str | Callable[[], str] | None = None) -> None:
        """Show the answer: the value as JSON with ``--json``, else the text (or the value itself)."""
        if self.as_json:
            document = json.dumps(_plain(value), indent=2, ensure_ascii=False)
            harmless = STEERING.sub(lambda found: f"\\u{ord(found[0]):04x}", document)
            sys.stdout.write(harmless + "\n")
        else:
            shown = text() if callable(text) else text
            _say(sys.stdout, str(value) if shown is None else shown)
        sys.stdout.flush()

    @property
    def width(self) -> int:
        """Characters in a line; in a pipe so many that nothing need be cut."""
        return shutil.get_terminal_size().columns if sys.stdout.isatty() else _PIPE_WIDTH

    def table(
        self,
        value: Sequence[Any],
        columns: Sequence[str],
        rows: Sequence[Sequence[str]],
        empty: str,
        *,
        bad: Collection[int] = (),
    ) -> None:
        """Show many values: JSON with ``--json``, else a table, or a status line when there are none.

        Args:
            bad: numbers, from 0, of the rows that stand out.
        """
        if self.as_json:
            self.answer(list(value))
            return
        if not rows:
            self.status(empty)
            return
        coloured = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
        texts = [[_harmless(cell) for cell in row] for row in rows]
        lines = table_lines(columns, texts, self.width, bad=bad, coloured=coloured)
        for line in lines:
            sys.stdout.write(line + "\n")
        sys.stdout.flush()

    def output(self, lines: Iterable[bytes], *, errors: bool = False) -> None:
        """What a service wrote, on stdout or stderr: on a terminal made printable, else its bytes."""
        stream = sys.stderr if errors else sys.stdout
        with suppress(OSError) if errors else written():
            stream.flush()
            for line in lines:
                if stream.isatty():
                    stream.write(_harmless(line.decode(errors="backslashreplace")))
                else:
                    stream.buffer.write(line)
            stream.flush()

    def status(self, text: str) -> None:
        """A sentence about what was done; on stderr."""
        _say(sys.stderr, text)

    def hint(self, text: str) -> None:
        """What the reader may do next; on stderr, never with ``--json``."""
        if not self.as_json:
            _say(sys.stderr, f"Hint: {text}")

    def failed(self, error: ReliveError) -> None:
        """Show an error in four parts; on stderr with ``--json`` too, where stdout does not take it."""
        if self.as_json and not isinstance(error, OutputLost):
            with suppress(OutputLost):
                self.answer({"error": error.as_json()})
                return
        _say(sys.stderr, f"Error: {error.message} ({error.code})")
        if error.cause:
            _say(sys.stderr, f"Cause: {error.cause}")
        if error.remedy:
            _say(sys.stderr, f"Remedy: {error.remedy}")

    @contextmanager
    def progress(self, what: str, total: int) -> Iterator[Callable[[int], None]]:
        """A progress bar on stderr, for work of ``total`` steps; the block calls what it gets with the steps done."""
        if not _shows_bars() or total <= 1:
            yield lambda _done: None
            return
        from relive.cli.bars import steps_bar

        with steps_bar(what, total) as advance:
            yield advance

    @contextmanager
    def transfer(self, what: str, total: int) -> Iterator[Callable[[int], None]]:
        """The same for ``total`` bytes that travel, with rate and remaining time; called with each number of bytes done."""
        if not _shows_bars() or total == 0:
            yield lambda _done: None
            return
        from relive.cli.bars import bytes_bar

        with bytes_bar(what, total) as advance:
            yield advance


def _shows_bars() -> bool:
    """Somebody looks; FORCE_COLOR says so where nobody does, as it does for rich."""
    return bool(os.environ.get("FORCE_COLOR")) or sys.stderr.isatty()


def _say(stream: IO[str], text: str) -> None:
    stream.write(_harmless(text) + "\n")


def _harmless(text: str) -> str:
    return printable(text.translate(_ACTING))


def _plain(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return value
