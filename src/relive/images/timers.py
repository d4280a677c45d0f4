"""Timers as a branch has to get them, which is not as CRIU writes them down or sets them (criu/timerfd.c, criu/timer.c).

1. A timer with a period that has expired unnoticed has no time left: 0, which to set means to stop it. The kernel sets it anew
   when the timerfd is read, or the SIGALRM delivered; but not in a process that CRIU has restored: there it would never expire
   again. So it is often found, as the process stands still while it is looked at. It gets a whole period: late by the time since
   it expired, which is that of the pause where the process takes note of it at once.
2. To a timerfd that was set to a moment (TFD_TIMER_ABSTIME) CRIU adds the seconds of the clock, not the parts of a second: it
   expires up to 1 s early, and one that is stopped, or has expired for good, at once. What CRIU has written down is the time that
   is left, so it is set by that. Not where a change of the clock is to be told, too (TFD_TIMER_CANCEL_ON_SET): that needs a moment.

In the images of a branch, not of a commit: so that those of older commits are right, too.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from relive.images import criu_images_pb2 as pb
from relive.images.image_file import read_entries, write_entries

__all__ = ["set_timers"]

_ABSTIME, _CANCEL_ON_SET = 1, 2


def set_timers(images: Path, processes: Iterable[pb.PstreeEntry]) -> None:
    """Change what is laid out in ``images``, of these processes; nothing where all is right.

    Raises:
        ObjectCorrupt: an image is damaged.
    """
    path = images / "files.img"
    files = read_entries(path, pb.FileEntry)
    changed = [
        _set_descriptor(one.tfd) for one in files if one.HasField("tfd")
    ]  # all, not only up to the first
    if any(changed):
        write_entries(path, files)
    for process in processes:
        path = images / f"core-{process.pid}.img"
        cores = read_entries(path, pb.CoreEntry) if path.exists() else []
        if any(_set_alarm(one.tc.timers.real) for one in cores if one.HasField("tc")):
            write_entries(path, cores)


def _set_descriptor(timer: pb.TimerfdEntry) -> bool:
    """Whether something was to be changed."""
    has_expired = timer.ticks and not (timer.vsec or timer.vnsec)
    is_late = bool(has_expired and (timer.isec or timer.insec))
    if is_late:
        timer.vsec, timer.vnsec = timer.isec, timer.insec
    is_by_moment = timer.settime_flags & (_ABSTIME | _CANCEL_ON_SET) == _ABSTIME
    if is_by_moment:
        timer.settime_flags = 0
    return is_late or is_by_moment


def _set_alarm(timer: pb.ItimerEntry) -> bool:
    """Of one that was stopped the kernel tells no period (setitimer(2))."""
    is_late = bool((timer.isec or timer.iusec) and not (timer.vsec or timer.vusec))
    if is_late:
        timer.vsec, timer.vusec = timer.isec, timer.iusec
    return is_late
