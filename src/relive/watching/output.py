"""A container's output, followed by its engine's command into the files of its watch, line by line.

Its files are what a capsule's are: an incident keeps their end, the proxy notes their sizes. They lag behind the container by
as much as its engine does, and lines that ends before a watch began are not in them.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import BinaryIO

import structlog

from relive.watching.engine import OutputTarget
from relive.watching.timestamps import moment

__all__ = ["OutputFollower", "split_line"]

_LINE_MOST = 1 << 20  # [bytes] of a line; what is longer comes in parts
_TIME = re.compile(rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:\d\d)) ?")
_PAUSE = 0.2  # [s] before the command is started again, which ends when the container does
_NOTE_EVERY = 0.2  # [s] between two notes of how far it is


def split_line(line: bytes) -> tuple[str, bytes]:
    """(its time as the engine wrote it, what the container wrote); the time is empty where there is none."""
    match = _TIME.match(line)
    return (match[1].decode(), line[match.end() :]) if match is not None else ("", line)


class OutputFollower:
    """Belongs to the agent's event loop.

    Args:
        command: gives the command, for what was written from a time on.
        target: its ``position`` keeps the time of the last line; an agent that died may have lines of its last moments twice.

    Attributes:
        idle: set while nothing is followed: all that the container has written is in the files.
    """

    def __init__(self, command: Callable[[str], Sequence[str]], target: OutputTarget) -> None:
        self._command = command
        self._streams = target.streams
        self._position = target.position
        self._on_line = target.on_line
        self._log = structlog.get_logger()
        self._noted = 0.0
        for path in self._streams:
            path.touch()
        self.idle = asyncio.Event()
        self.idle.set()
        try:
            self._last = self._position.read_text().strip() or target.since
        except FileNotFoundError:
            self._last = target.since

    async def follow(self, has_started: asyncio.Event) -> None:
        """Follow until it is cancelled; ``has_started`` is set whenever there is a new start to follow."""
        while True:
            await has_started.wait()
            has_started.clear()
            self.idle.clear()
            try:
                await self._follow_once()
            finally:
                self.idle.set()
            await asyncio.sleep(_PAUSE)

    async def _follow_once(self) -> None:
        process = await asyncio.create_subprocess_exec(
            *self._command(self._last),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            limit=_LINE_MOST,
            cwd="/",
        )
        assert process.stdout is not None and process.stderr is not None
        behind = moment(self._last)
        try:
            await asyncio.gather(
                self._copy(process.stdout, self._streams[0], behind),
                self._copy(process.stderr, self._streams[1], behind),
            )
            await process.wait()
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                await process.wait()
            self._note()

    async def _copy(self, reader: asyncio.StreamReader, target: Path, behind: int) -> None:
        with target.open("ab", buffering=0) as file:
            while line := await _next_line(reader):
                time_text, text = split_line(line)
                if not time_text:
                    self._log.warning("the engine says", words=line.decode(errors="replace").strip())
                elif moment(time_text) > behind:  # two runs of the command overlap by the last line
                    self._write_line(file, time_text, text)

    def _write_line(self, file: BinaryIO, time_text: str, text: bytes) -> None:
        begin = self._streams[-1].stat().st_size
        file.write(text)
        if moment(time_text) > moment(self._last):
            self._last = time_text
        if time.monotonic() - self._noted > _NOTE_EVERY:
            self._note()
        self._on_line(text.rstrip(b"\r\n"), begin)

    def _note(self) -> None:
        self._noted = time.monotonic()
        self._position.write_text(self._last)


async def _next_line(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.readuntil(b"\n")
    except asyncio.IncompleteReadError as error:
        return error.partial
    except asyncio.LimitOverrunError as error:
        return await reader.readexactly(error.consumed)
