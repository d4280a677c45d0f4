"""How an operation says how far it is; each face renders it in its own way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

__all__ = ["Progress", "Silent"]


class Progress(Protocol):
    """What hears of it; ``cli.terminal.Terminal`` is one."""

    def progress(self, what: str, total: int) -> AbstractContextManager[Callable[[int], None]]:
        """Work of ``total`` steps begins; the block calls what it gets with the number of steps done so far."""

    def transfer(self, what: str, total: int) -> AbstractContextManager[Callable[[int], None]]:
        """``total`` bytes begin to travel; the block calls what it gets with each number of bytes that has."""

    def status(self, text: str) -> None:
        """A sentence about what was done."""


class Silent:
    """Nobody listens."""

    @contextmanager
    def progress(self, _what: str, _total: int) -> Iterator[Callable[[int], None]]:
        """As ``Progress``."""
        yield lambda _done: None

    @contextmanager
    def transfer(self, _what: str, _total: int) -> Iterator[Callable[[int], None]]:
        """As ``Progress``."""
        yield lambda _done: None

    def status(self, _text: str) -> None:
        """As ``Progress``."""
