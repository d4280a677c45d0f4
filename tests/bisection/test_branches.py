"""What a command's exit status says of a commit; the rest is in tests/real/test_bisect.py."""

from __future__ import annotations

import pytest

from relive.bisection.branches import judged_status
from relive.bisection.judgement import Judgement

GOOD, BAD, SKIPPED, FAILED = Judgement


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (0, GOOD),
        (1, BAD),
        (124, BAD),
        (125, SKIPPED),
        (126, FAILED),
        (127, FAILED),
        (128, FAILED),
        (137, FAILED),
    ],
)
def test_the_convention_is_that_of_git_bisect_run(status, said):
    assert judged_status(status, "").judgement is said


def test_a_signal_and_a_missing_program_end_the_search():
    assert judged_status(-9, "").is_final and judged_status(127, "sh: 1: nope: not found").is_final
    assert (
        judged_status(127, "sh: 1: nope: not found").seen
        == "the command ended with 127: sh: 1: nope: not found"
    )
    assert not judged_status(125, "").is_final


def test_a_branch_that_could_not_be_entered_is_no_reason_to_skip():
    """GIVEN native/enter.c, which ends with 125 as well."""
    assert judged_status(125, "relive-enter: the process has ended").judgement is FAILED
