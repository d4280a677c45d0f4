"""Wishes that change the state of a branch instead of its code: what their fields say, and the change that they mean."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from relive.operations.progress import Progress
from relive.sandbox.branch import Branch
from relive.trial.state import StateChange, change_state, parse_file

__all__ = ["MODULE_TEXT", "SET_TEXT", "WRITE_TEXT", "changed_as_wished"]

SET_TEXT = (
    "Python that changes the state first, in each Python process of the branch: app.cache['rates'] = None; "
    "again for more"
)
WRITE_TEXT = "PATH=TEXT: have this file of the branch hold this text first (on the command line PATH=FILE, a file of this host)"
MODULE_TEXT = "With set: use the names of this module; without: the program's, and all modules by their names"


def changed_as_wished(
    statements: Sequence[str], files: Sequence[str], module: str | None, progress: Progress
) -> Callable[[Branch], None]:
    """What changes a branch; it raises as ``trial.state.change_state``."""
    change = StateChange(tuple(statements), tuple(map(parse_file, files)), module)

    def make(branch: Branch) -> None:
        if change.words:
            for sentence in change_state(branch, change):
                progress.status(sentence)

    return make
