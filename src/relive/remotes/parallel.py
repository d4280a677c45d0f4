"""Several requests at once, results in order; and how it is told how far a transfer is."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import TypeVar

__all__ = ["Show", "in_order"]

Asked = TypeVar("Asked")
Got = TypeVar("Got")

Show = Callable[[str, int], AbstractContextManager[Callable[[int], None]]]
"""Called with what is done and its bytes; within the block, what it gives is called with each number of bytes done."""

_AT_ONCE = 4  # requests; with a piece each, this much of memory is taken too


def in_order(ask: Callable[[Asked], Got], asked: Iterable[Asked]) -> Iterator[tuple[Asked, Got]]:
    """Each of ``asked`` with its result, a few of them worked on at the same time. No thread is left behind.

    The first failure is raised, and what has not begun then is not begun.
    """
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        waiting: deque[tuple[Asked, Future[Got]]] = deque()
        try:
            for one in asked:
                waiting.append((one, pool.submit(ask, one)))
                if len(waiting) > _AT_ONCE:
                    first, result = waiting.popleft()
                    yield first, result.result()
            while waiting:
                first, result = waiting.popleft()
                yield first, result.result()
        finally:
            for _, result in waiting:
                result.cancel()
