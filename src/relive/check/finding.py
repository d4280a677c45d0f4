"""What was found of one process, descriptor or path, as a value."""

from __future__ import annotations

from enum import StrEnum

from relive.model.text import NativeText
from relive.model.value import Value

__all__ = ["Finding", "Severity"]


class Severity(StrEnum):
    """How bad it is, the worst first.

    ``blocks``: no commit can be taken, or no branch be made of it. ``lost``: a branch does not have it. ``left-out``: it is seen in
    a branch as it is then, not as it was. ``note``: good to know.
    """

    BLOCKS = "blocks"
    LOST = "lost"
    LEFT_OUT = "left-out"
    NOTE = "note"


class Finding(Value):
    """One thing that was found.

    Attributes:
        code: kebab-case and stable; where a commit would be refused, mostly the reason's name of ``checkpoint.criu_errors``.
        pid: host pid of the process, None where it is about all of them or about a command.
        process: its name.
        subject: the descriptor, path or namespace, as ``descriptor 7 (socket:[12])``.
        cause: why, in plain words.
        remedy: what to change; None where nothing need be.
    """

    severity: Severity
    code: str
    pid: int | None
    process: str | None
    subject: NativeText
    cause: NativeText
    remedy: NativeText | None
