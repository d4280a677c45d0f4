from __future__ import annotations

import signal

import pytest

from relive.model.failure_stack import (
    lines_of_request,
    lines_to_first_stack,
    stack_at_end,
    stack_of_end,
    stack_of_failure,
)
from relive.model.incident import FailureKind, Sighting
from relive.model.stack import find_stacks

NODE = """/srv/shop.js:3
  throw new TypeError("no plan");
  ^

TypeError: no plan
    at process.<anonymous> (/srv/shop.js:3:9)
    at process.emit (node:events:517:28)
"""
AT_END = [*NODE.splitlines(), "", "Node.js v18.20.4"]
FAULT_THREAD = "Current thread 0x00007fe9a7217040 (most recent call first):"
LONG_AGO = [*NODE.splitlines(), "served", "served", "stopping"]


def named(kind: FailureKind, lines: list[str], **fields: object) -> str | None:
    sighting = Sighting(kind=kind, fingerprint="f", summary="s", seen_wall_ns=1, **fields)
    stack = stack_of_failure(sighting, lines)
    return stack.exception if stack is not None else None


def test_the_stack_that_node_leaves_is_at_the_end() -> None:
    stack = stack_at_end(AT_END)
    assert stack is not None
    assert stack.exception == "TypeError: no plan"


@pytest.mark.parametrize("lines", [[], ["ready"], LONG_AGO])
def test_what_may_have_been_caught_is_not_at_the_end(lines: list[str]) -> None:
    assert stack_at_end(lines) is None


def test_an_end_without_a_request_is_not_explained_by_what_was_printed_long_ago() -> None:
    assert named(FailureKind.EXIT, LONG_AGO, exit_status=3) is None
    assert named(FailureKind.EXIT, AT_END, exit_status=1) == "TypeError: no plan"
    assert named(FailureKind.EXIT, LONG_AGO, exit_status=3, starting=True) == "TypeError: no plan"
    assert named(FailureKind.EXIT, LONG_AGO, exit_status=3, log_begin=0) == "TypeError: no plan"


def test_a_process_that_is_killed_in_the_middle_of_a_call_prints_no_stack_of_it() -> None:
    """Its worker may have printed one for the request before, in the same millisecond."""
    assert named(FailureKind.SIGNAL, AT_END, signal=signal.SIGSEGV, log_begin=0) is None
    assert named(FailureKind.MEMORY, AT_END, log_begin=0) is None
    assert named(FailureKind.SIGNAL, AT_END, signal=signal.SIGABRT, log_begin=0) == "TypeError: no plan"


def test_a_handler_of_the_signal_prints_the_stack_of_it() -> None:
    """GIVEN another request's exception, then what faulthandler prints; WHEN the signal ended it; THEN it is the latter."""
    printed = [
        *LONG_AGO,
        "Fatal Python error: Segmentation fault",
        "",
        FAULT_THREAD,
        '  File "/srv/shop.py", line 3 in price',
    ]
    fault = "Fatal Python error: Segmentation fault"
    assert named(FailureKind.SIGNAL, printed, signal=signal.SIGSEGV, log_begin=0) == fault
    assert stack_of_end(signal.SIGSEGV, printed) == find_stacks(printed)[-1]
    assert stack_of_end(signal.SIGKILL, printed) is None
    assert stack_of_end(signal.SIGSEGV, LONG_AGO) is None


OTHER = [line.replace("no plan", "of another") for line in NODE.splitlines()]


@pytest.mark.parametrize(
    ("lines", "answered", "kept"),
    [
        (["in", "behind"], 1, 2),
        ([*OTHER, "behind", *OTHER], len(OTHER), len(OTHER)),
        (["in", *OTHER, "behind", *OTHER], 1, 1 + len(OTHER)),
        (["in", *OTHER, *OTHER], 5, 1 + len(OTHER)),
    ],
    ids=["no stack", "one before the answer", "one behind it", "one that begins before it"],
)
def test_what_other_requests_print_later_is_not_of_this_one(
    lines: list[str], answered: int, kept: int
) -> None:
    assert lines_of_request(lines, answered) == lines[:kept]


@pytest.mark.parametrize(
    ("before", "behind", "first", "last"),
    [
        (0, 0, "/srv/shop.js:3", "    at process.emit (node:events:517:28)"),
        (0, 50, "/srv/shop.js:3", "other 32"),
        (200, 0, "own 167", "    at process.emit (node:events:517:28)"),
        (200, 50, "own 167", "    at process.emit (node:events:517:28)"),
    ],
)
def test_of_many_lines_those_until_the_first_stack_are_told(
    before: int, behind: int, first: str, last: str
) -> None:
    stack = NODE.splitlines()
    lines = [f"own {n}" for n in range(before)] + stack + [f"other {n}" for n in range(behind)]
    told = lines_to_first_stack(lines, 40)
    assert (told[0], told[-1]) == (first, last)


def test_without_a_stack_the_first_lines_are_told() -> None:
    assert lines_to_first_stack([str(n) for n in range(90)], 40) == [str(n) for n in range(40)]
