"""The sentence of `relive why`."""

from __future__ import annotations

from typing import Any

import pytest

from relive.model import intervention as model
from relive.model.commit import CommitId
from relive.model.trial import FixRun
from relive.operations.explaining import sentence_of


@pytest.mark.parametrize(
    ("enough", "begins", "ends"),
    [
        (True, "It fails because of request 10", "is needed, given the state that it holds."),
        (
            False,
            "It does not fail without request 10",
            "are needed, too, or their number.",
        ),
        (None, "It does not fail without request 10", "or since, is not known."),
    ],
)
def test_a_request_is_called_the_cause_only_where_it_was_enough_alone(enough, begins, ends):
    """Of a leak to ten whose commit held nine `why` said that it fails because of the tenth."""
    change = model.ChangeDescription(
        option="--without 10", about="request 10 (POST /jobs)", recorded="sent", instead="left out"
    )
    shared: dict[str, Any] = {
        "commit": CommitId("c" * 64),
        "control": [FixRun(fails=True, result="fails the same")],
    }
    runs = [FixRun(fails=False, result="no failure")]
    cause = model.Tested(changes=[change], effect=model.Effect.GOES_AWAY, runs=runs, enough=enough, **shared)
    told = model.Explanation(
        **shared, incident=1, service="s", failing="GET /", causes=[cause], tried=[], compared_with=None,
        sentence="", why_not=None, replays=9, seconds=2.5, most_replays=100, most_seconds=600.0,
    )  # fmt: skip
    said = sentence_of(told)
    assert said.startswith(begins) and said.endswith(ends) and "commit cccccccccc" in said
