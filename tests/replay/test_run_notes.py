"""What a verdict says beside the verdict."""

from __future__ import annotations

from pathlib import Path

import pytest

from relive.model.outcome import End, Outcome, Verdict, VerdictKind
from relive.replay.inprocess_events import EventWindow
from relive.replay.run_notes import missing_words, not_sent_words, sent_anew_words, with_notes

VERDICT = Verdict(kind=VerdictKind.REPRODUCED, inside=["the same exception"])


def test_the_notes_follow_what_the_verdict_says_already():
    noted = with_notes(VERDICT, None, Outcome(end=End.ANSWERED), ["a ring was cut off"])
    assert noted.inside == ["the same exception", "a ring was cut off"]
    assert noted.kind is VerdictKind.REPRODUCED


def test_what_the_recording_lacks_inside_is_said():
    window = EventWindow([], Path("bodies"), lost=3, left_out=7, damage="cut off at 12")
    noted = with_notes(VERDICT, window, Outcome(end=End.ANSWERED), [])
    assert [line.partition(" ")[0] for line in noted.inside[1:]] == ["3", "7", "what"]
    assert noted.inside[-1].endswith("cut off at 12")


@pytest.mark.parametrize(
    ("words", "one", "more"),
    [
        (not_sent_words, "1 connection of a client ", "2 connections of clients "),
        (missing_words, "missing at 1 place ", "missing at 2 places "),
    ],
)
def test_a_count_is_said_in_its_number_and_none_not_at_all(words, one: str, more: str):
    assert words(0) == []
    assert one in words(1)[0]
    assert more in words(2)[0]


def test_requests_that_were_sent_on_a_new_connection_are_named_or_counted():
    assert sent_anew_words([]) == []
    assert "request 5 " in sent_anew_words([5])[0]
    assert "each of 2 requests " in sent_anew_words([5, 6])[0]
