"""The files of this process's modules: whether they are still what was imported, so that nobody forks old code."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["ModuleFiles"]


@dataclass(frozen=True, slots=True)
class ModuleFiles:
    """What stat(2) said of each; the time of its last change of any kind is none that a program can set."""

    facts: Mapping[str, tuple[int, int, int] | None]
    is_certain: bool

    @classmethod
    def loaded(cls, since_ns: int) -> ModuleFiles:
        """Those of all modules imported so far.

        Args:
            since_ns: before the first of them was imported. One that has changed after that may be other than what was imported.
        """
        paths = {getattr(module, "__file__", None) for module in list(sys.modules.values())}
        # A library that was made in memory and loaded by its descriptor is no file that anybody could change.
        files = sorted(path for path in paths if path is not None and not path.startswith("/proc/"))
        facts = {path: _facts(path) for path in files}
        return cls(facts, all(fact is None or fact[2] < since_ns for fact in facts.values()))

    def are_current(self) -> bool:
        """All of them are what they were, and nothing was changed while they were imported."""
        return self.is_certain and all(_facts(path) == fact for path, fact in self.facts.items())


def _facts(path: str) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_ctime_ns
