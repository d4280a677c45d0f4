"""Standing still after a failure until a commit is taken, so that the failing frames are alive in it.

*Alive* means: the exception, its traceback and so every frame of it, with the very objects their names refer to, are held by the
thread that waits here. Those frames have ended (an exception has passed through them), so nobody can go on in them; but in
a branch a debugger opens on them as after ``pdb.post_mortem``, in the real process with all else that was in it.

1. The agent touches ``agent.alive`` in the rings' directory again and again, with the monotonic clock as its time. Without that, or
   when it is old, nobody waits.
2. The thread makes ``throw-PID-N`` there; the agent sees it (inotify), takes the commit, and removes it: the thread goes on.
3. Whatever else happens, it goes on after ``options.wait_ms``, and then removes the file itself: a commit that ends later
   does not hold the frames.
4. In a branch the file is not there, so the thread goes on as well; unless a file ``debug-PID-N`` is, which asks it to open a
   debugger first (see ``debugger``).

A file ``debug-request`` in a branch asks the handling of one request to open a debugger when it begins.

Never a commit storm: each fingerprint once in ``options.failure_pause``, ``_BUDGET`` of all together in ``_BUDGET_TIME``, one
thread at a time.
"""

import collections
import itertools
import json
import os
import threading
import time
from typing import Deque, Dict, Optional

from relive_recorder.guard import attempt
from relive_recorder.recorder import RECORD, recorder

__all__ = ["decide", "stand_still", "stop_at_request"]

_HEARTBEAT = "agent.alive"
_STALE = 1_000_000_000  # [ns] an agent that has been silent for so long is not waited for
_BUDGET = 6  # commits at failures of one process ...
_BUDGET_TIME = 60_000_000_000  # [ns] ... in this time
_KNOWN_MOST = 1024
_SHORTEST, _LONGEST = 0.0005, 0.01  # [s] between two looks
# Taken now: these may be replaced later, by Relive itself or by a library that makes them cooperative.
_sleep = time.sleep
_mono = time.monotonic_ns

_numbers = itertools.count(1)
_busy = threading.Lock()
_last: Dict[str, int] = {}
_recent: Deque[int] = collections.deque()
_has_stopped = False


def _after_fork() -> None:
    """The thread that may have held the turn is not there in the child."""
    global _busy
    _busy = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)


def decide(fingerprint: str) -> Optional[str]:
    """The name of the file to wait for, or None. A name that was given has to be waited for: it holds the turn."""
    if recorder.mode() != RECORD or recorder.options.wait_ms <= 0 or not _is_heard():
        return None
    now = _mono()
    last = _last.get(fingerprint)
    if last is not None and now - last < recorder.options.failure_pause * 1e9:
        return None
    while _recent and now - _recent[0] > _BUDGET_TIME:
        _recent.popleft()
    if len(_recent) >= _BUDGET or not _busy.acquire(False):
        return None
    if len(_last) >= _KNOWN_MOST:
        _last.clear()
    _last[fingerprint] = now
    _recent.append(now)
    return f"throw-{os.getpid()}-{next(_numbers)}"


def _is_heard() -> bool:
    try:
        beaten = os.stat(f"{recorder.options.rings}/{_HEARTBEAT}").st_mtime_ns
    except OSError:
        return False
    return abs(_mono() - beaten) < _STALE


def stand_still(name: str, error: BaseException) -> None:
    """Wait as it stands above; ``error`` is held meanwhile, and with it its frames."""
    path = f"{recorder.options.rings}/{name}"
    epoch = recorder.epoch
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600))
        until = _mono() + recorder.options.wait_ms * 1_000_000
        nap = _SHORTEST
        while recorder.mode() == RECORD and recorder.epoch == epoch and os.path.exists(path):
            if _mono() > until:
                os.unlink(path)
                return
            _sleep(nap)
            nap = min(nap * 1.5, _LONGEST)
    except FileNotFoundError:  # the agent was quicker by a hair
        pass
    finally:
        _busy.release()
    recorder.mode()  # notices a branch, also where it was committed between the question and the look above
    if recorder.epoch != epoch:
        attempt(_in_a_branch, name, error)


def _in_a_branch(name: str, error: BaseException) -> None:
    path = f"{recorder.options.rings}/{name.replace('throw-', 'debug-', 1)}"
    if os.path.exists(path):
        from relive_recorder.failure import debugger

        debugger.examine(f"{path}.sock", error)


def stop_at_request(method: str, target: str) -> None:
    """In a branch: open the debugger where the service's own code begins with this request, if the branch was asked for that."""
    global _has_stopped
    path = f"{recorder.options.rings}/debug-request"
    if _has_stopped or not os.path.exists(path):
        return
    with open(path, encoding="utf-8") as file:
        wanted = json.load(file)
    if wanted != {"method": method, "target": target}:
        return
    _has_stopped = True
    from relive_recorder.failure import debugger

    debugger.stop_in_own_code(f"{path}.sock")
