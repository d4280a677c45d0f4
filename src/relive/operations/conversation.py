"""What is said to an operation while it goes on, and what it shows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from pydantic import BaseModel

__all__ = ["Conversation"]


class Conversation(Protocol):
    """The operation's side."""

    def commands(self, silence: float) -> Iterator[str]:
        """Each command, when it comes; it ends when nobody can say any more, and after so many seconds of silence."""
        raise NotImplementedError

    def show(self, view: BaseModel) -> None:
        """Say how things are now."""
        raise NotImplementedError
