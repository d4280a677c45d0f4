"""Timers of a commit on top of another: their settings as they stood, in CRIU's images. Decisions only; nothing here reads a file.

As in a full commit: what is written is what the kernel says is left. What CRIU would make of it that is wrong is put right in the
images of a branch (``relive.images.timers``).
"""

from __future__ import annotations

from collections.abc import Iterable

from relive.checkpoint.micro_record import FullCommitNeeded, NotNow, TimerSetting
from relive.images import criu_images_pb2 as pb

__all__ = ["set_task_timers", "set_timerfd"]

_NONE = (0, 0)


def set_timerfd(entry: pb.TimerfdEntry, now: TimerSetting) -> None:
    """Make the image of a timerfd say what it is set to now.

    Args:
        entry: as in the base.

    Raises:
        NotNow: it may be about to expire, and the branch would not have that.
    """
    is_over = not now.ticks and now.left == _NONE
    if is_over and not now.rests:
        raise NotNow("a timer may be about to expire, which cannot be told from one that is stopped")
    entry.ticks, entry.settime_flags = now.ticks, now.flags
    (entry.vsec, entry.vnsec), (entry.isec, entry.insec) = now.left, now.period


def set_task_timers(entry: pb.TaskTimersEntry, hidden: Iterable[str]) -> None:
    """Make the image of a process's interval timers and POSIX timers say what they are set to now.

    Args:
        entry: as in the base.
        hidden: what the process told (``Seen.hidden``).

    Raises:
        FullCommitNeeded: it told of others than are in the base.
    """
    posix = {}
    for line in hidden:
        kind, *words = line.split()
        if kind == "interval_timers":
            numbers = [int(word) for word in words]
            for which, timer in enumerate((entry.real, entry.virt, entry.prof)):
                timer.isec, timer.iusec, timer.vsec, timer.vusec = numbers[4 * which : 4 * which + 4]
        elif kind == "posix_timer":
            posix[int(words[0])] = [int(word) for word in words[1:]]
    if posix.keys() != {one.it_id for one in entry.posix}:
        raise FullCommitNeeded("timers were made or deleted (timer_create)")
    for one in entry.posix:
        one.isec, one.insec, one.vsec, one.vnsec, one.overrun = posix[one.it_id]
