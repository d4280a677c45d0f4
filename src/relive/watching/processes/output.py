"""What a service writes to its output, where that are files: followed from the watch's beginning on, line by line."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable

from relive.agent.failures.log_files import FollowedFile, LogFile
from relive.watching.engine import OutputTarget

__all__ = ["FileOutput"]

_PAUSE = 0.2  # [s] between two looks


class FileOutput:
    """See ``Output``. Belongs to the agent's event loop.

    Args:
        find: the files of the start that runs now.
    """

    def __init__(self, find: Callable[[], list[LogFile]], target: OutputTarget) -> None:
        self._find = find
        self._target = target
        self._followed: dict[str, FollowedFile] = {}
        self._positions: dict[str, tuple[int, int]] = {}
        for path in target.streams:
            path.touch()
        with contextlib.suppress(OSError, ValueError, TypeError):
            self._positions = {
                path: tuple(at) for path, at in json.loads(target.position.read_text()).items()
            }
        self.idle = asyncio.Event()  # set for a moment after each look, for who waits until all is read
        self._look_for_files()  # before the watch is said to have begun

    def _look_for_files(self) -> None:
        for log in self._find():
            if log.path not in self._followed:
                one = self._followed[log.path] = FollowedFile(log, self._positions.get(log.path))
                one.begin()

    async def follow(self, has_started: asyncio.Event) -> None:
        """See ``Output``."""
        try:
            await has_started.wait()  # who is told of lines knows by then what they belong to
            while True:
                if has_started.is_set():
                    has_started.clear()
                    self._look_for_files()
                self._read()
                self.idle.set()
                self.idle.clear()
                await asyncio.sleep(_PAUSE)
        finally:
            for one in self._followed.values():
                one.close()

    def _read(self) -> None:
        lines = [(one.log.stream, line) for one in self._followed.values() for line in one.lines()]
        for stream, line in lines:
            begin = self._target.streams[-1].stat().st_size
            with self._target.streams[stream].open("ab") as file:
                file.write(line)
            self._target.on_line(line.rstrip(b"\r\n"), begin)
        positions = {path: at for path, one in self._followed.items() if (at := one.position()) is not None}
        if positions != self._positions:
            self._positions = positions
            self._target.position.write_text(json.dumps(positions))
