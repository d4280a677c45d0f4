"""How far long work has come: written by the threads that do it, read by whoever waits for it."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["Advance", "Stage"]


@dataclass(slots=True)
class Stage:
    """A part of the work, of ``total`` steps; belongs to the thread that does it."""

    what: str
    total: int
    _of: Advance = field(repr=False)
    done: int = 0

    def step(self, count: int = 1) -> None:
        """So many steps more are done."""
        self.done += count
        self._of.current = self
        self._of.moves += 1


@dataclass(slots=True)
class Advance:
    """May be read, and have stages begun, in any thread.

    Attributes:
        current: the stage that moved last; None: none has begun.
        moves: grows as long as anything goes on; only that is promised of it where several threads work.
    """

    current: Stage | None = None
    moves: int = 0

    def begin(self, what: str, total: int) -> Stage:
        """Work of ``total`` steps begins; ``what`` says it as a person would, "storing files"."""
        self.current = Stage(what, total, self)
        self.moves += 1
        return self.current
