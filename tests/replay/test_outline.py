"""Outlines of verdicts: what differed and where, and nothing of what a service said."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relive.operations.runs import RunVerdict
from relive.replay.outline import _OUTLINES, OTHER, outline


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("status 500 was recorded, 200 came", "status 500 was recorded, 200 came"),
        ("recorded: no answer came; replayed: answered with status 200", "it ended in another way"),
        ("body $.alice@example.org: 's3cret' was recorded, nothing came", "the body of the answer differed"),
        ("header x-token: s3cret was recorded, nothing came", "a header of the answer differed"),
        ("log line 7 differs: 's3cret' was recorded, 'b' came", "line 7 of the log differed"),
        ("event 3 of request 12: GET http://s3cret/ was recorded", "event 3 of request 12 differed"),
        ("the exception inside: s3cret.Error was recorded, none came", "the exception inside differed"),
        ("2 calls of the request, each with the recorded answer", "2 calls, each with the recorded answer"),
        (
            "only the recorded side wrote to its log; its last line: 's3cret'",
            "only one side wrote to its log",
        ),
        ("signal 11 (SEGV_MAPERR) at address 0x10 was recorded, signal 6 came", "the fatal signal differed"),
        ("s3cret", OTHER),
    ],
)
def test_it_tells_what_and_where(words: str, told: str):
    assert outline(words) == told


@given(st.sampled_from([pattern.pattern for pattern, _ in _OUTLINES]).flatmap(st.from_regex))
def test_of_any_words_nothing_but_numbers_is_shown(words: str):
    """GIVEN words of any kind, THEN what is told of them is one of few sentences, but for numbers."""
    known = {re.sub(r"\{\d\}", "N", told) for _, told in _OUTLINES} | {OTHER}
    told = re.sub(r"\d+", "N", outline(words))
    assert told in {re.sub(r"\d+", "N", one) for one in known}


def test_a_verdict_keeps_what_is_no_text_of_the_service():
    verdict = RunVerdict(
        number=1,
        verdict="diverged",
        missing=["the database was not asked"],
        difference="body: 's3cret' was recorded, '' came",
        evidence=["the same last line in the log: 's3cret'"],
        unseen=["the database was not asked", "the log's last line: 's3cret' was recorded, '' came"],
        played="inside",
        notes=["s3cret", "before it: s3cret"],
        packets_left=0,
    )
    shown = verdict.outlined()
    assert "s3cret" not in shown.model_dump_json()
    assert (shown.number, shown.verdict, shown.played, shown.packets_left) == (1, "diverged", "inside", 0)
    assert shown.difference == "the body of the answer differed"
    assert shown.unseen == ["the database was not asked", "the log's last line differed"]
    assert shown.evidence == ["the same last line in the log"]
    assert shown.notes == ["the answer to an earlier request differed"]
