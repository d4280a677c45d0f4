"""Where the ``relive`` program begins. What it imports is imported in ``main``, so that this comes before it."""

from __future__ import annotations

import gc
import os
import signal
from typing import NoReturn

__all__ = ["main"]


def main() -> None:
    """Entry point of the ``relive`` script; in a process of its own, whose garbage collector it sets."""
    # Nothing is garbage while modules are imported, but each pass looks at all that there is so far: a tenth of the time.
    gc.disable()
    try:
        _run()
    except Exception as error:
        from relive.cli.last_resort import end_broken

        end_broken(error)


def _run() -> None:
    try:
        from relive.cli.forked import run_forked

        status = run_forked()
        if status is not None:
            _end_as(status)
        from relive.cli.app import main as run
    except KeyboardInterrupt:  # what it interrupted here is nobody's affair
        _end_as(-signal.SIGINT)

    run(loaded=_collect_from_now_on)


def _end_as(status: int) -> NoReturn:
    """End this process as another has ended: by that status, or by that signal."""
    if status < 0:
        signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    # Nothing of it was written here, so nothing is left to be.
    os._exit(status if status >= 0 else 128 - status)


def _collect_from_now_on() -> None:
    gc.freeze()  # modules stay; no pass has to look at them again, and a forked child does not copy their pages
    gc.enable()
