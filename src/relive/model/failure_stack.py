"""Which of the stacks in a service's log is of its failure: the log is one for all processes and requests."""

from __future__ import annotations

import signal
from collections.abc import Sequence

from relive.model.incident import FailureKind, Sighting
from relive.model.outcome import Stack
from relive.model.stack import find_stack, find_stacks, last_stack, placed_stacks
from relive.model.stackforms import is_of_signal

__all__ = [
    "lines_of_request",
    "lines_to_first_stack",
    "stack_at_end",
    "stack_of_end",
    "stack_of_failure",
]

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


def lines_of_request(lines: Sequence[str], answered: int) -> list[str]:
    """What of a log is of one request: the lines until its answer, and those behind it that are still of its failure.

    A failure is often told after the answer, and then by the next stack. Where one stands before the answer, or begins there, what
    follows is of other requests.

    Args:
        lines: from the request's begin on.
        answered: how many of them stood there when it was answered.
    """
    stacks = placed_stacks(list(lines))
    before = [end for begin, end, _ in stacks if begin < answered]
    if before:
        return list(lines[: max(answered, *before)])
    return list(lines[: stacks[0][1]] if stacks else lines)


def lines_to_first_stack(lines: Sequence[str], most: int) -> list[str]:
    """The first lines, at most ``most``; where the first stack ends behind them, the last of those until its end.

    Args:
        lines: from the request's begin on; those behind its stack may be of others.
    """
    stacks = placed_stacks(list(lines))
    end = max(most, stacks[0][1] if stacks else 0)
    return list(lines[:end])[-most:]


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
