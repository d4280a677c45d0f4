"""What can be told of a failure without an error package, and what cannot."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from relive.config import Settings
from relive.errors import PackageMissing
from relive.model.incident import FailureKind, Incident, Sighting
from relive.recording.events import Event, EventKind
from relive.replay.fresh.unpackaged import asked_in_order, unpackaged_input


def incident(kind: FailureKind, request: int | None) -> Incident:
    sighting = Sighting(kind=kind, fingerprint="f", summary="s", seen_wall_ns=1, request=request)
    return Incident(
        number=3, service="shop", life="L", sighting=sighting, before=None, at=None, last_seen_wall_ns=1
    )


@pytest.mark.parametrize(
    ("kind", "request_number", "why"),
    [
        (FailureKind.SIGNAL, None, "did not happen to one request"),
        (FailureKind.ANSWER, None, "did not happen to one request"),
        (FailureKind.HANG, None, "did not happen to one request"),
        (FailureKind.LOG, 1, "did not happen to one request"),
        (FailureKind.ANSWER, 1, "is gone"),
        (FailureKind.EXIT, 1, "is gone"),
    ],
)
def test_what_is_no_answer_or_is_not_here_is_refused_with_the_reason(
    tmp_path: Path, kind: FailureKind, request_number: int | None, why: str
) -> None:
    with pytest.raises(PackageMissing) as raised:
        unpackaged_input(Settings(home=tmp_path), incident(kind, request_number), lambda _incident: {})
    assert why in (raised.value.cause or "")
    assert "relive replay 3" in (raised.value.remedy or "")


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"open_requests": [4]}, "what was recorded of its request is not here any more"),
        ({"open_requests": [4, 5]}, "2 requests were being served"),
        ({"request": 4, "from_outside": True, "sender": "by pid 9 (kill)"}, "sent by pid 9 (kill)"),
    ],
)
def test_a_death_is_of_the_one_request_that_was_open(
    tmp_path: Path, change: dict[str, Any], why: str
) -> None:
    settings = Settings(home=tmp_path)
    one = incident(FailureKind.SIGNAL, None)
    one = one.model_copy(update={"sighting": one.sighting.model_copy(update=change)})
    with pytest.raises(PackageMissing) as raised:
        unpackaged_input(settings, one, lambda _incident: {})
    assert why in (raised.value.cause or "")


@pytest.mark.parametrize(("kept", "why"), [("watch.json", "is watched"), ("agent.log", "state.json is gone")])
def test_without_the_start_of_its_service_it_is_said_why(tmp_path: Path, kept: str, why: str) -> None:
    """A watched container or service was started by somebody else."""
    settings = Settings(home=tmp_path)
    life = settings.capsules / "shop" / "L"
    life.mkdir(parents=True)
    (life / kept).touch()
    with pytest.raises(PackageMissing) as raised:
        unpackaged_input(settings, incident(FailureKind.ANSWER, 1), lambda _incident: {})
    assert why in (raised.value.cause or "")
    assert "Errno" not in (raised.value.cause or "")


def call(mono_ns: int, url: str) -> Event:
    return Event(mono_ns, mono_ns, 0, EventKind.HTTP_CALL, fields={"asked": {"url": url}})


def test_the_failing_request_gets_its_own_answers_and_not_those_of_an_earlier_one() -> None:
    """A server that the recorder does not know: all calls are of no request, and the same one was answered otherwise before."""
    beginning = [call(1, "/config"), call(5, "/rate"), call(6, "/token"), call(9, "/rate")]
    meanwhile = [call(9, "/rate"), call(10, "/config")]
    ordered = asked_in_order(beginning, meanwhile, first_request_ns=3)
    assert [(one.mono_ns, one.fields["asked"]["url"]) for one in ordered] == [
        (1, "/config"),
        (9, "/rate"),
        (10, "/config"),
        (6, "/token"),
    ]
