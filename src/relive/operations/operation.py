"""An operation as a value: its name, what is asked, what comes back, and the function that does it.

Long lists come in pages, everywhere in the same way: the wish has ``after``, a cursor behind which the page begins in the list's
order (without it, the list's begin), and the page has ``next``, the cursor for the page that follows, None where there is none.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from pydantic import BaseModel, ConfigDict

from relive.config import Settings
from relive.operations.progress import Progress

__all__ = ["Operation", "Result", "Wish"]


class Wish(BaseModel):
    """Base of what is asked: immutable, and a misspelt name is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Result(BaseModel):
    """Base of what comes back: immutable."""

    model_config = ConfigDict(frozen=True)


W = TypeVar("W", bound=Wish)
R = TypeVar("R", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Operation(Generic[W, R]):
    """Something that acts.

    Attributes:
        name: in kebab-case, unique.
        run: raises ReliveError; to be called in a process with one thread.
    """

    name: str
    wish: type[W]
    result: type[R]
    run: Callable[[Settings, W, Progress], R]
