"""What protects a service, and what of it does not work now: since when, how often it was tried, and why.

Parts are what goes on by itself as long as the service lives: its commits, the watch for failures, the proxy, the recording of what
happens inside. None of them ends for an error. Who does their work says here what came of it, and waits as long as it is told to
before it tries again. Commands ask the agent for all of it (``relive ps``, ``relive health``).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from relive.errors import ReliveError
from relive.kernel.disk_errors import disk_full, is_disk_full
from relive.model.protection import Trouble

__all__ = ["Protection", "retry_pause"]

_PAUSE_LEAST = 1.0  # [s]
_PAUSE_MOST = 60.0  # [s]
_DOUBLINGS_MOST = 30


def retry_pause(times: int, longest: float = _PAUSE_MOST) -> float:
    """Seconds to wait after so many failures in a row (at least one): each wait is twice the one before it, up to the longest."""
    return min(_PAUSE_LEAST * 2.0 ** min(times - 1, _DOUBLINGS_MOST), longest)


def _named(error: Exception) -> ReliveError:
    if isinstance(error, ReliveError):
        return error
    if isinstance(error, OSError) and is_disk_full(error):
        return disk_full("no space left; the service runs on", error.filename, error)
    return ReliveError(
        "an unforeseen error, please report it",
        cause=f"{type(error).__name__}: {error}",
        remedy="the agent's log holds all of it; it is tried again",
    )


class Protection:
    """Of one service, from the start of its agent. May be used by any thread."""

    def __init__(self, now_ns: Callable[[], int] = time.time_ns) -> None:
        self._now_ns = now_ns
        self._lock = threading.Lock()
        self._troubles: dict[str, Trouble] = {}

    def failed(self, part: str, error: Exception, longest: float = _PAUSE_MOST) -> float:
        """A part failed once more; returns the seconds after which it is to be tried again."""
        failure = _named(error)
        with self._lock:
            known = self._troubles.get(part)
            times = known.times + 1 if known is not None else 1
            since = known.since_wall_ns if known is not None else self._now_ns()
            self._troubles[part] = Trouble.of(part, since, times, failure)
        return retry_pause(times, longest)

    def works(self, part: str) -> None:
        """A part did what it is there for."""
        with self._lock:
            self._troubles.pop(part, None)

    def as_json(self) -> list[dict[str, object]]:
        """What does not work now, the oldest first: each a ``Trouble``."""
        with self._lock:
            known = sorted(self._troubles.values(), key=lambda one: one.since_wall_ns or 0)
        return [one.model_dump() for one in known]
