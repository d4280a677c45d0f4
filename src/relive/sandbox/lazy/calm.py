"""When to bring in memory that nobody waits for: not while a branch that has just begun touches one page after the other.

Reading and checking the rest takes the disk and a core from who waits. A branch that never stops asking gets the rest all the same:
who goes through all of its memory is served best by what is read ahead.
"""

from __future__ import annotations

__all__ = ["FIRST", "pause_before_rest"]

FIRST = 0.2  # [s] after it began to run, in which who waits comes first
_CALM = 0.02  # [s] without anybody waiting


def pause_before_rest(since_begin: float, since_waited: float) -> float:
    """Seconds in which only what is waited for is brought in.

    Args:
        since_begin: seconds since the branch began to run.
        since_waited: seconds since somebody waited for a page, or since it began.
    """
    return 0.0 if since_begin >= FIRST else max(0.0, min(_CALM - since_waited, FIRST - since_begin))
