"""Trials as values: what other code a branch was given, and what it did with the request that had failed."""

from __future__ import annotations

from relive.model.value import Value

__all__ = ["TAG_PREFIX", "NotSwapped", "Swapped"]

TAG_PREFIX = "kept-"  # of the tag that keeps the commit of a kept state


class NotSwapped(Value):
    """A part of a change that did not reach the living process, and why; ``file``: absolute."""

    file: str
    name: str
    why: str


class Swapped(Value):
    """What of a change reached the processes of a branch.

    Attributes:
        processes: how many had loaded one of the files.
        swapped: functions with other code, "FILE: NAME"; added: names that are new in a module or class.
        left: what did not reach them.
        files: that were written in the branch; unloaded: those that no process had loaded, and reads when it does.
        notes: such as a call that goes on with the old code.
    """

    processes: int = 0
    swapped: list[str] = []
    added: list[str] = []
    left: list[NotSwapped] = []
    files: list[str] = []
    unloaded: list[str] = []
    notes: list[str] = []
