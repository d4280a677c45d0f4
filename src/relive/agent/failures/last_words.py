"""What a service that has ended says of it at the end of its log."""

from __future__ import annotations

from relive.model.stack import last_stack

__all__ = ["exception_at_end"]

_LINES_AFTER = 2  # Node.js names its version


def exception_at_end(lines: list[str]) -> str | None:
    """The exception of the stack that a log ends with.

    None where there is no stack, or more comes behind it: then it may be of something that was caught.
    """
    stack = last_stack(lines)
    if stack is None:
        return None
    behind = 0
    for line in reversed(lines):
        if line.strip() == stack.text[-1].strip():
            return stack.exception
        behind += bool(line.strip())
        if behind > _LINES_AFTER:
            break
    return None
