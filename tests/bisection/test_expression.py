"""What came of an expression says of a commit; the rest is in tests/real/test_bisect.py."""

from __future__ import annotations

import pytest

from relive.bisection.expression import judged_value
from relive.bisection.judgement import Judgement
from relive.inspection.python.values import Evaluated, Outcome

GOOD, BAD, _, FAILED = Judgement


@pytest.mark.parametrize(
    ("outcome", "text", "said"),
    [
        (Outcome.VALUE, "True", BAD),
        (Outcome.VALUE, "False", GOOD),
        (Outcome.RAISED, "'rates'", FAILED),
        (Outcome.HUNG, "it did not end within 10 s", FAILED),
        (Outcome.DIED, "its process ended", FAILED),
    ],
)
def test_only_a_value_is_a_judgement(outcome, text, said):
    found = judged_value(Evaluated(process=2, outcome=outcome, type="KeyError", text=text))
    assert found.judgement is said
    assert outcome is Outcome.VALUE or text in found.seen
