"""How far the memory of a lazy branch is there: ``memory.json`` in the branch's directory, replaced as a whole."""

from __future__ import annotations

from pathlib import Path

from relive.errors import MemoryLost
from relive.kernel.atomic_write import Durability, replace_file
from relive.model.branch import MemoryFailure, MemoryState

__all__ = ["memory_lost", "pager_killed", "read_memory", "write_failure", "write_memory"]

_NAME = "memory.json"


def write_memory(directory: Path, state: MemoryState) -> None:
    """Replace it; raises OSError, as when the branch's directory is gone."""
    replace_file(directory / _NAME, state.model_dump_json().encode(), durability=Durability.NONE)


def write_failure(directory: Path, failure: MemoryFailure) -> None:
    """Write down why the branch had to be ended; raises OSError."""
    state = read_memory(directory) or MemoryState(total=0, present=0)
    write_memory(directory, state.model_copy(update={"failure": failure}))


def read_memory(directory: Path) -> MemoryState | None:
    """The state, None for a branch that was not restored lazily."""
    try:
        return MemoryState.model_validate_json((directory / _NAME).read_bytes())
    except FileNotFoundError:
        return None


def pager_killed() -> MemoryFailure:
    """The failure of which nobody was left to tell more."""
    return MemoryFailure(
        code=MemoryLost.code,
        message="the page daemon was killed",
        cause=None,
        remedy="restore the commit again",
    )


def memory_lost(failure: MemoryFailure) -> MemoryLost:
    """What is raised or shown for a branch that was ended."""
    return MemoryLost(
        "the branch was stopped: its memory was not all there, and the rest cannot come",
        cause=f"{failure.message}: {failure.cause}" if failure.cause else failure.message,
        remedy=failure.remedy,
    )
