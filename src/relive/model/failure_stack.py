"""Which of the stacks in a service's log is of its failure: the log is one for all processes and requests."""

from __future__ import annotations

import signal
from collections.abc import Sequence

from relive.model.incident import FailureKind, Sighting
from relive.model.outcome import Stack
from relive.model.stack import find_stack, last_stack

__all__ = ["leaves_no_stack", "stack_at_end", "stack_of_failure"]

_LINES_AFTER = 2  # Node.js names its version

# Nothing in the process comes to print a stack when it gets one of these: what stands in the log was printed before, of something
# else. Not SIGABRT, SIGILL and SIGTRAP, by which runtimes end a process of which they have told why.
_WITHOUT_STACK = frozenset({signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGKILL})


def stack_of_failure(sighting: Sighting, lines: Sequence[str]) -> Stack | None:
    """The stack that the service printed of this failure; None where there is none, or each may be of something else.

    Args:
        lines: the service's log from ``log_begin`` on, if that is known, else all of it.
    """
    if sighting.kind is FailureKind.MEMORY or leaves_no_stack(sighting.signal):
        return None
    if sighting.kind is FailureKind.EXIT and sighting.log_begin is None:
        return last_stack(list(lines)) if sighting.starting else stack_at_end(lines)
    return find_stack(list(lines))


def leaves_no_stack(number: int | None) -> bool:
    """A process that ends by this signal has not said why."""
    return number in _WITHOUT_STACK


def stack_at_end(lines: Sequence[str]) -> Stack | None:
    """The stack that a log ends with.

    None where there is no stack, or more comes behind it: then it may be of something that was caught.
    """
    stack = last_stack(list(lines))
    if stack is None:
        return None
    behind = 0
    for line in reversed(lines):
        if line.strip() == stack.text[-1].strip():
            return stack
        behind += bool(line.strip())
        if behind > _LINES_AFTER:
            break
    return None
