"""Outcomes from what was recorded and from what a branch did."""

from __future__ import annotations

import base64
import signal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relive.model.incident import FailureKind, Sighting
from relive.model.outcome import End, Fault
from relive.recording.exchanges import Exchange, ExchangeEnd
from relive.replay.outcomes import (
    died_outcome,
    read_log,
    read_log_of,
    recorded_answer,
    recorded_outcome,
    replayed_answer,
    with_fault,
)
from relive.replay.received import ReceivedAnswer

HEAD = b"HTTP/1.1 500 Oh\r\nContent-Type: text/plain\r\nX-Shard: 7\r\n\r\n"
TRACEBACK = ["Traceback (most recent call last):", '  File "a.py", line 1, in f', "KeyError: 1"]


def exchange(ended: ExchangeEnd = ExchangeEnd.ANSWERED, **facts) -> Exchange:
    return Exchange(
        number=1,
        connection=1,
        request_head=b"GET / HTTP/1.1\r\n\r\n",
        started_seq=1,
        started_mono_ns=0,
        started_wall_ns=0,
        ended=ended,
        ended_mono_ns=2_000_000,
        **{"answer_head": HEAD, "status": 500} | facts,
    )


def sighting(kind: FailureKind, **facts) -> Sighting:
    return Sighting(kind=kind, fingerprint="x", summary="x", seen_wall_ns=0, **facts)


@pytest.mark.parametrize(
    ("ended", "end"),
    [
        (ExchangeEnd.ANSWERED, End.ANSWERED),
        (ExchangeEnd.UPGRADED, End.ANSWERED),
        (ExchangeEnd.BROKEN, End.BROKEN),
        (ExchangeEnd.OPEN, End.NO_ANSWER),
        (ExchangeEnd.ABANDONED, End.NO_ANSWER),
        (ExchangeEnd.LOST, End.NO_ANSWER),
    ],
)
def test_how_a_recorded_request_ended(ended, end):
    assert recorded_answer(exchange(ended), []).end is end


def test_a_recorded_answer_has_its_status_headers_time_log_and_stack():
    outcome = recorded_answer(exchange(), TRACEBACK)
    assert (outcome.status, outcome.seconds, outcome.log) == (500, 0.002, TRACEBACK)
    assert outcome.headers == [("content-type", "text/plain"), ("x-shard", "7")]
    assert outcome.stack is not None
    assert (outcome.packets_left, outcome.refused) == (None, None)


@pytest.mark.parametrize("kind", [FailureKind.SIGNAL, FailureKind.EXIT, FailureKind.MEMORY])
def test_an_incident_of_the_service_itself_is_a_death_whatever_its_request(kind):
    facts = {"exit_status": 3} if kind is FailureKind.EXIT else {"signal": 11}
    outcome = recorded_outcome(sighting(kind, request=1, **facts), exchange(), TRACEBACK)
    assert outcome.end is End.DIED
    assert outcome.exit_status == (3 if kind is FailureKind.EXIT else 139)
    assert (outcome.stack is not None) == (kind is FailureKind.EXIT)  # no traceback is of SIGSEGV


def test_an_exception_is_judged_by_its_answer_or_by_the_end_of_the_service():
    answered = recorded_outcome(sighting(FailureKind.EXCEPTION, request=1), exchange(), TRACEBACK)
    assert (answered.end, answered.status) == (End.ANSWERED, exchange().status)
    died = recorded_outcome(sighting(FailureKind.EXCEPTION, exit_status=1), None, TRACEBACK)
    assert (died.end, died.exit_status, died.signal) == (End.DIED, 1, None)


def test_a_hang_is_no_answer_though_one_came_later():
    assert recorded_outcome(sighting(FailureKind.HANG), exchange(), []).end is End.NO_ANSWER


def test_a_request_that_is_not_in_the_recording_had_no_answer():
    assert recorded_outcome(sighting(FailureKind.ANSWER), None, []).end is End.NO_ANSWER


def test_chunk_framing_is_taken_off():
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n"
    answer = ReceivedAnswer(End.ANSWERED, 200, head, bytearray(b"2\r\nab\r\n1\r\nc\r\n0\r\n\r\n"), 0.1)
    assert replayed_answer(answer, []).body == "abc"


@given(st.binary(max_size=50))
def test_a_body_that_is_no_text_is_shown_in_base64(data):
    outcome = replayed_answer(ReceivedAnswer(End.ANSWERED, 200, HEAD, bytearray(data), 0.1), [])
    shown = base64.b64decode(outcome.body) if outcome.body_is_base64 else outcome.body.encode()
    assert shown == data


def test_a_large_body_is_cut_and_says_by_how_much():
    outcome = replayed_answer(
        ReceivedAnswer(End.ANSWERED, 200, HEAD, bytearray(b"a" * ((1 << 20) + 5)), 0.1), []
    )
    assert (len(outcome.body), outcome.body_cut) == (1 << 20, 5)


def test_a_large_text_is_still_text_after_the_cut():
    data = ("a" + "ü" * (1 << 19)).encode()
    assert not replayed_answer(
        ReceivedAnswer(End.ANSWERED, 200, HEAD, bytearray(data), 0.1), []
    ).body_is_base64


def test_a_text_of_which_only_the_beginning_was_recorded_is_still_text(monkeypatch):
    monkeypatch.setattr(Exchange, "answer_body", lambda _self: "aü".encode()[:2])
    outcome = recorded_answer(exchange(answer_cut=7), [])
    assert (outcome.body, outcome.body_is_base64, outcome.body_cut) == ("a", False, 8)


def test_a_head_that_is_none_has_no_headers():
    assert replayed_answer(ReceivedAnswer(End.BROKEN), []).headers == []


@pytest.mark.parametrize(
    ("status", "end", "number", "exit_status"),
    [
        (None, End.NOTHING, None, None),
        (0, End.DIED, None, 0),
        (3 << 8, End.DIED, None, 3),
        (int(signal.SIGSEGV), End.DIED, 11, 139),
        (int(signal.SIGABRT) | 0x80, End.DIED, 6, 134),
    ],
)
def test_a_wait_status_is_a_death_or_nothing(status, end, number, exit_status):
    outcome = died_outcome(status, [], 1.5)
    assert (outcome.end, outcome.signal, outcome.exit_status) == (end, number, exit_status)
    assert outcome.seconds == 1.5


def test_a_fatal_signal_of_a_worker_is_the_outcome_though_the_service_goes_on():
    fault = Fault(process=7, is_root=False, signal=11, code="SEGV_MAPERR", address=0)
    outcome = with_fault(died_outcome(None, [], 1.5), fault)
    assert (outcome.end, outcome.signal, outcome.exit_status, outcome.fault) == (End.DIED, 11, 139, fault)


def test_a_hang_is_one_whatever_was_answered_later():
    """Whether there was an answer in the end depends on when one asks."""
    outcome = recorded_outcome(sighting(FailureKind.HANG), exchange(), TRACEBACK)
    assert (outcome.end, outcome.status, outcome.body) == (End.NO_ANSWER, None, "")


def test_a_death_that_was_recorded_and_one_in_a_branch_are_told_alike():
    recorded = recorded_outcome(sighting(FailureKind.SIGNAL, signal=11), None, [])
    replayed = died_outcome(11, [], 0.0)
    assert (recorded.end, recorded.signal, recorded.exit_status) == (
        replayed.end,
        replayed.signal,
        replayed.exit_status,
    )


def test_a_log_is_read_between_two_places(tmp_path):
    log = tmp_path / "stderr.log"
    log.write_bytes(b"before\nmeanwhile \xff\nafter\n")
    assert read_log(log, 7, 19) == ["meanwhile \ufffd"]
    assert read_log(log, 7) == ["meanwhile \ufffd", "after"]
    assert read_log(log, 1000) == []
    assert read_log(tmp_path / "gone", 0) == []


def test_of_a_long_log_the_end_is_read(tmp_path):
    log = tmp_path / "stderr.log"
    log.write_bytes(b"x" * (1 << 19) + b"\nlast\n")
    lines = read_log(log, 0)
    assert lines[-1] == "last"
    assert len(lines[0]) < 1 << 18


def test_the_stack_of_an_answer_is_its_own_when_others_have_failed_since(tmp_path):
    """GIVEN an incident that was written down late THEN a replay is compared with what its own request printed."""
    log = tmp_path / "stderr.log"
    own, other = ("\n".join([*TRACEBACK[:2], f"KeyError: {key}", ""]) for key in (1, 2))
    log.write_text(own + other)
    seen = Sighting(kind=FailureKind.ANSWER, fingerprint="f", summary="s", seen_wall_ns=1)
    one = exchange(log_offsets_before={str(log): 0}, log_offsets_after={str(log): len(own)})
    lines, after = read_log_of(log, seen, 0, log.stat().st_size, one)
    assert (lines, after) == (TRACEBACK, [])
    hung = seen.model_copy(update={"kind": FailureKind.HANG})
    assert len(read_log_of(log, hung, 0, log.stat().st_size, one)[0]) == 6
