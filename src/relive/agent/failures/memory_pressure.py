"""The moment before a kill for want of memory: when the memory that a control group cannot give back comes near its limit.

File caches do not count, which the kernel drops before it kills anybody. Between the level and the limit there is room for what the
service takes until the commit has stopped it; afterwards it goes on as if nothing had been.
"""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass

from relive.agent.capsule.memory_cgroup import MemoryGroup

__all__ = ["Levels", "Pressure"]

# Part of the limit, or so many bytes, but never more of the limit than that.
_SHARE, _MORE, _SHARE_MOST = (
    0.15,
    32 << 20,
    0.3,
)
_NEAR = 2  # rooms below the limit from where on it is looked at often
_SELDOM, _OFTEN = 1.0, 0.1  # [s] between two looks


@dataclass(frozen=True, slots=True)
class Levels:
    """Where a commit is due, all in bytes.

    Attributes:
        commit: from here on; again: below here the next rise is another one; near: from here on it may be a matter of moments.
    """

    commit: int
    again: int
    near: int

    @classmethod
    def of(cls, limit: int) -> Levels:
        """Those of a group with that limit."""
        room = int(min(max(limit * _SHARE, _MORE), limit * _SHARE_MOST))
        return cls(commit=limit - room, again=limit - room - room // 2, near=max(0, limit - _NEAR * room))


class Pressure:
    """Looks at one group; for one event loop.

    Attributes:
        is_high: it has come to the level, and has not been well below it since.
    """

    def __init__(self, group: MemoryGroup) -> None:
        self._group = group
        self._levels: Levels | None = None
        self._bell: int | None = None
        self._rung = asyncio.Event()
        self._held = 0
        self.is_high = False

    async def wait(self) -> None:
        """Until it may be time to look, a second at most."""
        levels = self._levels
        pause = _OFTEN if levels is not None and levels.near <= self._held and not self.is_high else _SELDOM
        try:
            await asyncio.wait_for(self._rung.wait(), pause)
        except TimeoutError:
            return
        self._rung.clear()

    def is_due(self) -> bool:
        """Whether a commit is due now; once for each rise."""
        limit = self._group.limit()
        if limit is None:
            return False
        levels = Levels.of(limit)
        if levels != self._levels:
            self._levels = levels
            self._listen(levels.commit)
        self._held = self._group.held()
        if self.is_high:
            self.is_high = self._held >= levels.again
            return False
        self.is_high = self._held >= levels.commit
        return self.is_high

    def _listen(self, level: int) -> None:
        """Have the kernel ring where it can (cgroups v1): what grows fast would be at the limit before the next look."""
        self.close()
        self._bell = self._group.bell(level)
        if self._bell is not None:
            asyncio.get_running_loop().add_reader(self._bell, self._ring, self._bell)

    def _ring(self, bell: int) -> None:
        os.eventfd_read(bell)
        self._rung.set()

    def close(self) -> None:
        """Doing it twice is no error."""
        if self._bell is not None:
            asyncio.get_running_loop().remove_reader(self._bell)
            os.close(self._bell)
            self._bell = None
