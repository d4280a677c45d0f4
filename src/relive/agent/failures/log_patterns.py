"""Lines of a service's output that stand for a failure, by the patterns that its owner gave."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from relive.agent.failures.log_files import FollowedFile, LogFile
from relive.agent.failures.sightings import log_sighting
from relive.model.incident import Sighting

__all__ = ["LinePatterns", "LogLines"]

_LINE_MOST = 64 << 10  # [bytes] of a line that patterns are looked for in
_PAUSE = 0.2  # [s] between two looks


class LinePatterns:
    """``patterns``: regular expressions, as ``model.watched.check_pattern`` lets pass."""

    def __init__(self, patterns: Sequence[str]) -> None:
        self._patterns = [re.compile(one.encode()) for one in patterns]

    def seen_in(self, line: bytes, begin: int) -> Sighting | None:
        """By the first pattern that is found, for a line is one failure; ``begin``: size of stderr's file when it began."""
        found = next((pattern for pattern in self._patterns if pattern.search(line[:_LINE_MOST])), None)
        if found is None:
            return None
        text = " ".join(line.decode(errors="replace").split())
        return log_sighting(found.pattern.decode(), text, begin, time.time_ns())


class LogLines:
    """The output files of a capsule, from now on; belongs to the agent's event loop.

    Args:
        logs: stdout's and stderr's.
        is_new: the service has just been started, so that what it has written by now counts too.
        see: called with each sighting.
    """

    def __init__(
        self, logs: Sequence[Path], patterns: Sequence[str], see: Callable[[Sighting], None], *, is_new: bool
    ) -> None:
        self._patterns = LinePatterns(patterns)
        self._see = see
        self._errors = logs[-1]
        self._files = []
        for stream, log in enumerate(logs):
            begin = (log.stat().st_ino, 0) if is_new and log.exists() else None
            file = FollowedFile(LogFile(str(log), stream), begin)
            file.begin()
            self._files.append(file)

    async def follow(self) -> None:
        """Look again and again, until it is cancelled."""
        while True:
            self.poll()
            await asyncio.sleep(_PAUSE)

    def close(self) -> None:
        """Let go of the files."""
        for file in self._files:
            file.close()

    def poll(self) -> None:
        """See what has come since."""
        for file in self._files:
            lines = file.lines()
            position = file.position()
            at = position[1] if position is not None else 0
            begin = at - sum(map(len, lines))
            for line in lines:
                size = begin if file.log.path == str(self._errors) else self._errors.stat().st_size
                begin += len(line)
                if (sighting := self._patterns.seen_in(line.rstrip(b"\r\n"), size)) is not None:
                    self._see(sighting)
