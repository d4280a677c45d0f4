"""Which time of an incident is meant."""

from __future__ import annotations

import pytest

from relive.model.commit import CommitId
from relive.model.incident import FailureKind, Incident, Occurrence, Sighting

ONE, OTHER = CommitId("1" * 64), CommitId("2" * 64)


def seen(kind: FailureKind, wall_ns: int) -> Sighting:
    return Sighting(kind=kind, fingerprint="f", summary="s", seen_wall_ns=wall_ns)


@pytest.mark.parametrize(
    ("kind", "before", "first", "meant"),
    [
        (FailureKind.ANSWER, ONE, False, 20),
        (FailureKind.ANSWER, ONE, True, 10),
        (FailureKind.SIGNAL, OTHER, False, 20),
        (FailureKind.SIGNAL, ONE, False, 10),  # the way to the latest death leads by the first
        (FailureKind.EXIT, None, False, 10),
    ],
)
def test_the_latest_time_is_meant_unless_it_comes_behind_the_first(
    kind: FailureKind, before: CommitId | None, first: bool, meant: int
) -> None:
    incident = Incident(
        number=1,
        service="shop",
        life="l",
        sighting=seen(kind, 10),
        before=ONE if before is not None else None,
        at=None,
        times=2,
        last_seen_wall_ns=20,
        latest=Occurrence(sighting=seen(kind, 20), before=before),
    )
    assert incident.occurrence(first=first).sighting.seen_wall_ns == meant
