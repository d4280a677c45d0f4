"""What `relive try` refuses before anything is restored, and what a run of the failing request alone shows."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from relive.errors import UsageError
from relive.model.commit import TargetKind
from relive.model.outcome import End, InsideEvent, Miss, Outcome, Run, Verdict, VerdictKind
from relive.operations.trying import fails_by_its_state, refuse_container

_FAILED = Outcome(end=End.ANSWERED, status=500, events=[])
_ASKED = InsideEvent(
    kind="redis-command", lane=1, about={"asked": {"command": ["GET", "flag"]}, "answer": None}
)
_MISS = Miss(kind="redis-command", asked={"command": ["GET", "flag"]}, policy="fail")


def case_of(kind: TargetKind) -> Any:
    return SimpleNamespace(service="shop", manifest=SimpleNamespace(target=SimpleNamespace(kind=kind)))


def test_a_service_in_a_container_is_not_started_afresh_on_the_host() -> None:
    with pytest.raises(UsageError, match="shop runs in a container") as refused:
        refuse_container(case_of(TargetKind.CONTAINER))
    assert "--fix" in str(refused.value.remedy)
    refuse_container(case_of(TargetKind.CAPSULE))


@pytest.mark.parametrize(
    ("verdict", "outcome", "shows"),
    [
        (Verdict(kind=VerdictKind.REPRODUCED), _FAILED, True),
        (Verdict(kind=VerdictKind.SAME_ANSWER), _FAILED, False),
        (Verdict(kind=VerdictKind.NOT_REPRODUCED), _FAILED.model_copy(update={"status": 200}), False),
        (Verdict(kind=VerdictKind.REPRODUCED, missing=["redis:6379"]), _FAILED, False),
        (Verdict(kind=VerdictKind.REPRODUCED), _FAILED.model_copy(update={"misses": [_MISS]}), False),
        (Verdict(kind=VerdictKind.REPRODUCED), _FAILED.model_copy(update={"events": [_ASKED]}), False),
        (Verdict(kind=VerdictKind.FAILED_TO_RESTORE), None, False),
    ],
)
def test_a_request_that_asks_for_more_than_was_recorded_shows_no_state_that_makes_it_fail(
    verdict, outcome, shows
) -> None:
    """A fix was said to come too late where the request, alone, failed for want of what those before it had made."""
    run = Run(number=1, verdict=verdict, outcome=outcome, forwarded=0, restore_us=1, seconds=1.0)
    assert fails_by_its_state(run, _FAILED) is shows
