"""Changes as they are written: what is read of them, and what is said of those that are none."""

from __future__ import annotations

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relive.errors import ChangeUnfit
from relive.intervention.grammar import (
    CallName,
    Delay,
    Failure,
    HttpAnswer,
    Instead,
    Reordered,
    Shift,
    Without,
    option_of,
    parse_answer,
    parse_pair,
)


@pytest.mark.parametrize(
    ("text", "to"),
    [
        ("http:1=503", HttpAnswer(503, None)),
        ('http:1=200 {"a": 1}', HttpAnswer(200, '{"a": 1}')),
        ("s3:2=", HttpAnswer(None, "")),
        ("http:1=700", HttpAnswer(None, "700")),
        ("http:1=delay:300ms", Delay(300_000_000)),
        ("query:1=delay:1.5", Delay(1_500_000_000)),
        ("query:1=fail:error:no: such table", Failure("error", "no: such table")),
        ("query:1=fail:psycopg.OperationalError:gone", Failure("psycopg.OperationalError", "gone")),
        ('query:1=[[1, "a"]]', Instead([[1, "a"]])),
        ("redis:1=null", Instead(None)),
        ("clock:1=+1h", Shift(3600 * 10**9)),
        ("clock:1=-90s", Shift(-90 * 10**9)),
        ("clock:1=-90", Instead(-90)),
        ("clock:1=2027-01-01T00:00:00", Instead("2027-01-01T00:00:00", is_moment=True)),
        ("random:1=0.25", Instead(0.25)),
    ],
)
def test_values_are_of_their_kind(text, to):
    assert parse_answer(text).to == to


def test_a_call_has_a_request_and_a_path_has_steps():
    read = parse_answer("21/query:3$[0]['unit price'].x=7")
    assert (read.call, read.path, read.to) == (
        CallName(21, "query", 3),
        (0, "unit price", "x"),
        Instead(7),
    )
    assert str(read.call) == "21/query:3" and str(parse_answer("http:1=503").call) == "http:1"


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("", "does not begin with a call"),
        ("sql:1=2", "does not begin with a call"),
        ("http=503", "does not begin with a call"),
        ("http:1", "neither a path"),
        ("http:1[0]=2", "neither a path"),
        ("http:1$.a", "neither a path"),
        ("query:1=rows", "no JSON"),
        ("query:1=NaN", "no JSON"),
        ("http:1$.a=delay:1s", "of a whole answer"),
        ("http:1=delay:soon", "no time"),
        ("http:1=delay:2h", "no time"),
        ("http:1=fail:", "a failure is"),
        ("clock:1=tomorrow", "no number, no moment"),
    ],
)
def test_what_is_no_change_is_refused_with_its_cause(text, cause):
    with pytest.raises(ChangeUnfit) as refused:
        parse_answer(text)
    assert cause in (refused.value.cause or "") and refused.value.remedy


@given(st.text(max_size=60))
def test_any_text_is_a_change_or_refused(text):
    """And a change that was read is written as it was given."""
    for one in (text, f"http:1={text}", f"query:1$[0]={text}", f"clock:1={text}"):
        try:
            read = parse_answer(one)
        except ChangeUnfit:
            continue
        assert shlex.split(option_of(read)) == ["--answer", one]


def test_pairs_of_requests():
    assert parse_pair("swap", "21, 22") == Reordered("swap", 21, 22)
    assert option_of(Reordered("apart", 1, 2)) == "--apart 1,2" and option_of(Without(5)) == "--without 5"
    for wrong in ("21", "a,b", "1,1", "-1,2", ""):
        with pytest.raises(ChangeUnfit):
            parse_pair("together", wrong)
