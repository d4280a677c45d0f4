"""The runs that a replay or reproduction has done while it has not ended, kept so that whoever does it again goes on there.

Each is kept as it ends, under the mark of who asked (``Settings.mark``), in the file in which the whole will lie; the row of the
whole takes their place (``incidents.runs``). Without a mark nobody could find them, and none is kept.

Runs only count for what they were made of: those of something else, or compared with something else, are made again.
"""

from __future__ import annotations

import hashlib
import time
from typing import Generic, TypeVar

from pydantic import BaseModel

from relive.config import Settings
from relive.incidents.runs import RunPart, Runs
from relive.model.outcome import Run
from relive.model.reproduction import Attempt

__all__ = ["Unfinished", "digest"]

P = TypeVar("P", Run, Attempt)


def digest(*values: BaseModel) -> str:
    """SHA-256 of values, in hex: to tell whether something is still the same."""
    return hashlib.sha256("\n".join(value.model_dump_json() for value in values).encode()).hexdigest()


class Unfinished(Generic[P]):
    """What is done of one replay (of ``Run``), or of one reproduction (of ``Attempt``)."""

    def __init__(self, settings: Settings, kind: type[P]) -> None:
        self._runs = Runs(settings.runs)
        self._mark = settings.mark
        self._kind: type[P] = kind
        self._parts = self._runs.parts(self._mark) if self._mark is not None else []
        self._about = ""
        self._attempt_wall_ns = self._since_ns = 0
        self._seconds = 0.0

    @property
    def about(self) -> str | None:
        """What the runs are of that an earlier attempt has kept; None if it kept none."""
        return self._parts[0].about if self._parts else None

    @property
    def began_wall_ns(self) -> int:
        """When the first attempt began."""
        return min([self._attempt_wall_ns, *(part.began_wall_ns for part in self._parts)])

    @property
    def seconds(self) -> float:
        """How long all attempts have worked, without what was lost with an attempt."""
        return self._seconds + self._since()

    def begin(self, about: str) -> list[P]:
        """An attempt begins: give what earlier ones have done of the same, by their numbers."""
        self._about = about
        self._attempt_wall_ns, self._since_ns = time.time_ns(), time.monotonic_ns()
        self._parts = [part for part in self._parts if part.about == about]
        self._seconds = sum(part.seconds for part in self._parts)
        return [self._kind.model_validate_json(part.result) for part in self._parts]

    def save(self, one: P) -> None:
        """One has ended; durable on return. Raises DiskFull, StoreError."""
        seconds = self._since()
        self._seconds += seconds
        self._since_ns = time.monotonic_ns()
        if self._mark is not None:
            made = RunPart(one.number, self._about, self._attempt_wall_ns, seconds, one.model_dump_json())
            self._runs.add_part(self._mark, made)

    def _since(self) -> float:
        return (time.monotonic_ns() - self._since_ns) / 1e9
