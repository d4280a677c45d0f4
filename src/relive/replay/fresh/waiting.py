"""Waiting in a sandbox for what happens there: that the service listens, that it ends, that a request was handled.

The kernel tells of an end (pidfd_open(2)), but to nobody that a socket begins to listen: that is looked for again and again.
"""

from __future__ import annotations

import os
import select
import time
from collections.abc import Callable

from relive.replay.ring_collector import BranchDrain
from relive.sandbox.fresh_process import FreshProcess

__all__ = ["wait_until"]

_PERIOD_MS = 5


def wait_until(sandbox: FreshProcess, drain: BranchDrain, is_there: Callable[[], bool], limit: float) -> bool:
    """Wait for ``is_there``, and take what is in the rings meanwhile.

    Returns:
        False when the service has ended, or ``limit`` seconds have passed, before.
    """
    until = time.monotonic() + limit
    try:
        root = os.pidfd_open(sandbox.root) if sandbox.root else -1
    except ProcessLookupError:
        root = -1
    poller = select.poll()
    if root >= 0:
        poller.register(root, select.POLLIN)
    try:
        while True:
            has_ended = root < 0 or bool(poller.poll(_PERIOD_MS))
            drain.drain()
            if is_there():
                return True
            if has_ended or time.monotonic() > until:
                return False
    finally:
        if root >= 0:
            os.close(root)
