"""Only commands that will not refuse are named, the most telling first."""

from __future__ import annotations

from relive.incidents.report.next_steps import next_steps
from relive.model.incident import FailureKind, Incident

from .builders import sighting

BEFORE, AT = "b" * 64, "a" * 64


WHY = "relive why 7"


def steps(
    *,
    before: str | None = BEFORE,
    at: str | None = AT,
    held: tuple[str, ...] = (BEFORE, AT),
    has_request: bool = True,
    has_handler: bool = False,
    can_reproduce: bool = False,
    has_earlier: bool = False,
    suffices: bool = False,
    **parts: object,
) -> list[str]:
    incident = Incident(
        number=7, service="s", life="L", sighting=sighting(**parts), before=before, at=at, last_seen_wall_ns=0
    )
    found = next_steps(
        incident,
        held=held,
        has_request=has_request,
        has_handler=has_handler,
        can_reproduce=can_reproduce,
        has_earlier=has_earlier,
        suffices=suffices,
    )
    return [one.command or one.why.partition(":")[0] for one in found]


def test_an_answer_is_replayed_and_stepped_towards_where_its_handler_is_known():
    assert steps() == ["relive replay 7", WHY]
    assert steps(has_handler=True) == ["relive replay 7", "relive debug 7 --at-request", WHY]


def test_a_waiting_thread_is_debugged():
    found = steps(kind=FailureKind.EXCEPTION, throw="throw-1-2", can_reproduce=True)
    assert found == ["relive replay 7", "relive debug 7", "relive debug 7 --step", "relive reproduce 7", WHY]
    gone = steps(kind=FailureKind.EXCEPTION, throw="throw-1-2", held=(AT,))
    assert "relive debug 7 --step" not in gone


def test_hangs_and_signals_are_debugged_first():
    assert steps(kind=FailureKind.HANG, has_handler=True) == ["relive debug 7", "relive replay 7"]
    assert steps(kind=FailureKind.SIGNAL, signal=11, request=None) == ["relive debug 7", "relive replay 7"]
    assert steps(kind=FailureKind.SIGNAL, signal=11, at=None) == ["relive replay 7"]


def test_the_request_alone_is_tried_where_it_is_kept_and_before_the_commits_are_searched():
    found = steps(can_reproduce=True, has_earlier=True)
    assert found == ["relive replay 7", "relive reproduce 7", "relive bisect --replay 7", WHY]
    for kind in (FailureKind.SIGNAL, FailureKind.HANG):
        found = steps(kind=kind, can_reproduce=True)
        assert found == ["relive debug 7", "relive replay 7", "relive reproduce 7"]


def test_no_commits_are_searched_where_the_request_alone_was_seen_to_suffice():
    found = steps(can_reproduce=True, has_earlier=True, suffices=True)
    assert found == ["relive replay 7", "relive reproduce 7", WHY]


def test_a_replay_that_would_refuse_or_cannot_show_it_is_not_offered():
    assert steps(before=None) == ["no replay"]
    assert steps(held=(AT,)) == ["no replay"]
    assert steps(has_request=False) == ["no replay"]
    assert steps(kind=FailureKind.SIGNAL, signal=9, from_outside=True, at=None) == ["no replay"]
    thread = steps(kind=FailureKind.EXCEPTION, request=None, throw="throw-1-2")
    assert thread == ["no replay", "relive debug 7"]
    assert steps(kind=FailureKind.EXCEPTION, request=None, exit_status=1, at=None) == ["relive replay 7"]


def test_when_it_began_is_asked_where_there_are_commits_to_ask_and_a_request_to_send():
    assert steps(has_earlier=True) == ["relive replay 7", "relive bisect --replay 7", WHY]
    assert steps(has_earlier=True, has_request=False) == ["no replay"]
    assert steps(has_earlier=True, before=None) == ["no replay"]
