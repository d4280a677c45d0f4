"""What came of an expression says of a commit; the rest is in tests/real/test_bisect.py."""

from __future__ import annotations

import pytest

from relive.bisection.expression import judged_value
from relive.bisection.judgement import Judgement
from relive.inspection.evaluated import EvalOutcome, Evaluated

GOOD, BAD, _, FAILED = Judgement


@pytest.mark.parametrize(
    ("outcome", "text", "said"),
    [
        (EvalOutcome.VALUE, "True", BAD),
        (EvalOutcome.VALUE, "False", GOOD),
        (EvalOutcome.RAISED, "'rates'", FAILED),
        (EvalOutcome.HUNG, "it did not end within 10 s", FAILED),
        (EvalOutcome.DIED, "its process ended", FAILED),
    ],
)
def test_only_a_value_is_a_judgement(outcome, text, said):
    found = judged_value(Evaluated(process=2, outcome=outcome, type="KeyError", text=text))
    assert found.judgement is said
    assert outcome is EvalOutcome.VALUE or text in found.seen
