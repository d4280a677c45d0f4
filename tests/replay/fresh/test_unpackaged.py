"""What can be told of a failing answer without an error package, and what cannot."""

from __future__ import annotations

from pathlib import Path

import pytest

from relive.config import Settings
from relive.errors import PackageMissing
from relive.model.incident import FailureKind, Incident, Sighting
from relive.replay.fresh.answered import case_of_answer


def incident(kind: FailureKind, request: int | None) -> Incident:
    sighting = Sighting(kind=kind, fingerprint="f", summary="s", seen_wall_ns=1, request=request)
    return Incident(
        number=3, service="shop", life="L", sighting=sighting, before=None, at=None, last_seen_wall_ns=1
    )


@pytest.mark.parametrize(
    ("kind", "request_number", "why"),
    [
        (FailureKind.SIGNAL, 1, "not the answer to one request"),
        (FailureKind.ANSWER, None, "not the answer to one request"),
        (FailureKind.ANSWER, 1, "is not here"),
    ],
)
def test_what_is_no_answer_or_is_not_here_is_refused_with_the_reason(
    tmp_path: Path, kind: FailureKind, request_number: int | None, why: str
) -> None:
    with pytest.raises(PackageMissing) as raised:
        case_of_answer(Settings(home=tmp_path), incident(kind, request_number))
    assert why in (raised.value.cause or "")
    assert "relive replay 3" in (raised.value.remedy or "")
