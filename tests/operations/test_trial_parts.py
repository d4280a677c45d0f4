"""How a trial is cut into parts, and what becomes of what they say; whole trials are in tests/real/test_trial.py."""

from __future__ import annotations

import pytest

from relive.errors import PatchUnfit, ReliveError, RestoreFailed
from relive.model.trial import FixRun, NeighbourDifference
from relive.operations.trial_parts import PartDone, _gathered, _parts

RUN = FixRun(fails=False, result="no failure")
OTHER = NeighbourDifference(request=1, asked="GET /", difference="another body")


def said(**what: object) -> str:
    return PartDone.model_validate(what).model_dump_json()


def test_runs_of_a_fix_share_a_process_and_neighbours_have_their_own() -> None:
    parts = _parts([2, 25], has_neighbours=True)
    runs = [(one.fix, *one.numbers) for one in parts if one.numbers]
    assert [(one[0], one[1], one[-1]) for one in runs] == [(0, 1, 2), (1, 1, 10), (1, 11, 20), (1, 21, 25)]
    assert [one.fix for one in parts if not one.numbers] == [0, 0, 1]
    assert not [one for one in _parts([2, 2], has_neighbours=False) if not one.numbers]


def test_parts_are_put_together_and_a_killed_one_is_said() -> None:
    first, second, near, again = _parts([12], has_neighbours=True)
    told = _gathered(
        [
            (first, said(runs=[RUN] * 10)),
            (second, None),
            (near, said(differing=[OTHER])),
            (again, said(differing=[OTHER])),
        ]
    )
    assert [one.fails for one in told.runs] == [False] * 10 + [None] * 2
    assert "killed" in str(told.runs[-1].difference)
    assert told.differing == [OTHER]


def test_neighbours_that_nobody_heard_of_are_not_said_to_be_as_they_were() -> None:
    runs, near, again = _parts([1], has_neighbours=True)
    with pytest.raises(ReliveError, match="neighbouring"):
        _gathered([(runs, said(runs=[RUN])), (near, said()), (again, None)])


def test_a_change_that_cannot_be_made_is_of_its_fix_alone_and_anything_else_ends_the_trial() -> None:
    (part,) = _parts([1], has_neighbours=False)
    refused = _gathered([(part, said(error=PatchUnfit("it does not apply").as_json()))]).refusal
    assert isinstance(refused, PatchUnfit)
    with pytest.raises(RestoreFailed):
        _gathered([(part, said(error=RestoreFailed("no").as_json()))])
