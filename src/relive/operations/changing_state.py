"""Params that change the state of a branch instead of its code: what their fields say, and the change that they mean."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from relive.errors import UsageError
from relive.operations.progress import Progress
from relive.sandbox.branch import Branch

__all__ = [
    "KEEP_TEXT",
    "MODULE_TEXT",
    "SET_TEXT",
    "WRITE_TEXT",
    "change_words",
    "changed_as_asked",
    "parse_file",
]

SET_TEXT = (
    "Python that changes the state first, in each Python process of the branch: app.cache['rates'] = None; "
    "again for more"
)
WRITE_TEXT = "PATH=TEXT: have this file of the branch hold this text first (on the command line PATH=FILE, a file of this host)"
MODULE_TEXT = "With set: use the names of this module; without: the program's, and all modules by their names"
KEEP_TEXT = "Keep the branch, changed so, as a commit of its own with this tag; its parent is the commit that was restored"


def parse_file(text: str) -> tuple[str, str]:
    """(path, text) of ``PATH=TEXT``; raises UsageError."""
    path, equals, content = text.partition("=")
    if not equals or not path.startswith("/"):
        raise UsageError(
            f"{text[:60]!r} names no file to be written",
            cause="it has no absolute path with = behind it",
            remedy="--write /path/in/the/service=FILE",
        )
    return path, content


def change_words(statements: Sequence[str], files: Sequence[str]) -> list[str]:
    """A line for each change; of a file its path only."""
    return [*statements, *(f"wrote {parse_file(text)[0]}" for text in files)]


def changed_as_asked(
    statements: Sequence[str], files: Sequence[str], module: str | None, progress: Progress
) -> Callable[[Branch], None]:
    """What changes a branch; it raises as ``trial.state.change_state``."""

    def make(branch: Branch) -> None:
        if not statements and not files:
            return
        from relive.trial.state import StateChange, change_state  # few restores need it

        change = StateChange(tuple(statements), tuple(map(parse_file, files)), module)
        for sentence in change_state(branch, change):
            progress.status(sentence)

    return make
