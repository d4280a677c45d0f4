"""The only module that writes to the terminal: answers to stdout; status, hints, errors and progress to stderr.

With ``--json`` an answer is one JSON object or array on stdout, and an error is ``{"error": {code, message, cause, remedy}}``
there too.
"""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from pydantic import BaseModel
from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.table import Table
from rich.text import Text

from relive.errors import ReliveError

__all__ = ["AsJson", "KeyFile", "RemoteUrl", "Terminal"]

AsJson = Annotated[bool, typer.Option("--json", help="Answer in JSON")]
RemoteUrl = Annotated[str, typer.Argument(help="s3://BUCKET/PREFIX or file:///PATH")]
KeyFile = Annotated[
    Path | None,
    typer.Option(
        "--key-file", help="Keys of encrypted archives, one a line; without, the setting export_keys"
    ),
]
_PIPE_WIDTH = 100_000  # [characters] nothing is folded or cut there
# Columns set to the right.
_NUMBERS = frozenset({"incident", "pid", "times", "pause", "durable", "size", "at ms", "lane", "took"})


class Terminal:
    """What a command speaks through."""

    def __init__(self, *, as_json: bool = False) -> None:
        self.as_json = as_json
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(errors="backslashreplace")  # file names may hold any bytes
        # A pipe has no width: nothing is cut there.
        width = None if sys.stdout.isatty() else _PIPE_WIDTH
        self._out = Console(highlight=False, emoji=False, soft_wrap=True, width=width)
        self._err = Console(stderr=True, highlight=False, emoji=False, soft_wrap=True)

    def answer(self, value: Any, text: str | Callable[[], str] | None = None) -> None:
        """Show the answer: the value as JSON with ``--json``, else the text (or the value itself)."""
        if self.as_json:
            sys.stdout.write(json.dumps(_plain(value), indent=2, ensure_ascii=False) + "\n")
        else:
            shown = text() if callable(text) else text
            self._out.print(str(value) if shown is None else shown, markup=False)
        sys.stdout.flush()

    @property
    def width(self) -> int:
        """Characters in a line; in a pipe so many that nothing need be cut."""
        return self._out.width

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
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
        for name in columns:
            justify: Literal["left", "right"] = "right" if name in _NUMBERS else "left"
            table.add_column(name, justify=justify, no_wrap=name != columns[-1])
        for number, row in enumerate(rows):
            table.add_row(*(Text(cell) for cell in row), style="red" if number in bad else None)
        self._out.print(table)

    def status(self, text: str) -> None:
        """A sentence about what was done; on stderr."""
        self._err.print(text, markup=False)

    def hint(self, text: str) -> None:
        """What the reader may do next; on stderr, never with ``--json``."""
        if not self.as_json:
            self._err.print(f"Hint: {text}", markup=False)

    def failed(self, error: ReliveError) -> None:
        """Show an error in four parts."""
        if self.as_json:
            self.answer({"error": error.as_json()})
            return
        self._err.print(f"Error: {error.message} ({error.code})", markup=False)
        if error.cause:
            self._err.print(f"Cause: {error.cause}", markup=False)
        if error.remedy:
            self._err.print(f"Remedy: {error.remedy}", markup=False)

    @contextmanager
    def progress(self, what: str, total: int) -> Iterator[Callable[[int], None]]:
        """A progress bar on stderr, for work of ``total`` steps; the block calls what it gets with the steps done."""
        if not self._err.is_terminal or total <= 1:
            yield lambda _done: None
            return
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        with Progress(*columns, console=self._err, transient=True) as bar:
            task = bar.add_task(what, total=total)
            yield lambda done: bar.update(task, completed=done)

    @contextmanager
    def transfer(self, what: str, total: int) -> Iterator[Callable[[int], None]]:
        """The same for ``total`` bytes that travel, with rate and remaining time; called with each number of bytes done."""
        if not self._err.is_terminal or total == 0:
            yield lambda _done: None
            return
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            DownloadColumn(binary_units=True),
            TransferSpeedColumn(),
            TimeRemainingColumn(),
        )
        with Progress(*columns, console=self._err, transient=True) as bar:
            task = bar.add_task(what, total=total)
            yield lambda done: bar.advance(task, done)


def _plain(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return value
