"""Which of the stacks in a service's log is of its failure: the log is one for all processes and requests."""

from __future__ import annotations

import signal
from collections.abc import Sequence

from relive.model.incident import FailureKind, Sighting
from relive.model.outcome import Stack
from relive.model.stack import find_stack, find_stacks, last_stack
from relive.model.stackforms import is_of_signal

__all__ = ["stack_at_end", "stack_of_end", "stack_of_failure"]

_LINES_AFTER = 2  # Node.js names its version

# What stands in the log when one of these ends a process was printed before, of something else, unless a handler of the signal has
# printed it (faulthandler). Not SIGABRT, SIGILL and SIGTRAP, by which runtimes end a process of which they have told why.
_SUDDEN = frozenset({signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGKILL})


def stack_of_failure(sighting: Sighting, lines: Sequence[str]) -> Stack | None:
    """The stack that the service printed of this failure; None where there is none, or each may be of something else.

    Args:
        lines: the service's log from ``log_begin`` on, if that is known, else all of it.
    """
    if sighting.kind is FailureKind.MEMORY:
        return None
    if sighting.signal in _SUDDEN:
        return stack_of_end(sighting.signal, lines)
    if sighting.kind is FailureKind.EXIT and sighting.log_begin is None:
        return last_stack(list(lines)) if sighting.starting else stack_at_end(lines)
    return find_stack(list(lines))


def stack_of_end(number: int | None, lines: Sequence[str]) -> Stack | None:
    """The last stack that a process printed of its end by this signal, or by an exit (None); None where it printed none."""
    if number == signal.SIGKILL:
        return None
    found = [one for one in find_stacks(list(lines)) if number not in _SUDDEN or is_of_signal(one)]
    return found[-1] if found else None


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
