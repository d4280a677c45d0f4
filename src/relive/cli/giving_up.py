"""What a command does that is asked to end while it makes something that nobody was told of yet."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

__all__ = ["taken_back_when_asked_to_end"]

_ENDING = (signal.SIGTERM, signal.SIGHUP)  # SIGINT raises by itself


@contextmanager
def taken_back_when_asked_to_end() -> Iterator[None]:
    """SIGTERM and SIGHUP raise KeyboardInterrupt in the block, once; behind it the process ends by that signal.

    In the main thread.
    """
    came: list[int] = []

    def give_up(number: int, _frame: FrameType | None) -> None:
        for one in before:
            signal.signal(one, signal.SIG_IGN)  # taking back must not be interrupted
        came.append(number)
        raise KeyboardInterrupt

    wanted = [one for one in _ENDING if signal.getsignal(one) is not signal.SIG_IGN]  # nohup(1)
    before = {one: signal.getsignal(one) for one in wanted}
    try:
        for one in wanted:
            signal.signal(one, give_up)
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if came:
            signal.signal(came[0], signal.SIG_DFL)
            os.kill(os.getpid(), came[0])
