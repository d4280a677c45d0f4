"""Expectations of an HTTP answer: what they say, and that they do nothing else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relive.bisection.expectation import Expectation, HttpAnswer
from relive.errors import UsageError

ANSWER = HttpAnswer(200, {"content-type": "application/json"}, '{"total": 3, "names": ["ann"]}', 0.02)


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("status == 200", True),
        ("status != 200", False),
        ("200 <= status < 300 and seconds < 1", True),
        ("json['total'] > 3 or 'ann' in json['names']", True),
        ("not 'nobody' in body", True),
        ("headers['content-type'] is not None", True),
        ("json['names'][-1] == 'ann'", True),
        ("status in (500, 503)", False),
    ],
)
def test_an_answer_is_as_expected_or_not(text, holds):
    assert Expectation(text).holds(ANSWER) is holds


@pytest.mark.parametrize(
    "text",
    ["", "status ==", "open('/etc/passwd')", "status.real == 1", "[one for one in body]", "x == 1", "2 ** 99 > 1",
     "(lambda: 1)", "f'{status}'", "status := 3"],
)  # fmt: skip
def test_anything_else_is_refused_before_it_is_asked(text):
    with pytest.raises(UsageError, match="is no expectation"):
        Expectation(text)


@pytest.mark.parametrize(
    "text", ["json['nothing'] == 1", "headers['x'] == 1", "body > 3", "json[0]", "-body == 1"]
)
def test_what_the_answer_does_not_have_cannot_be_told(text):
    with pytest.raises(ValueError, match="cannot be told"):
        Expectation(text).holds(ANSWER)


def test_a_body_that_is_no_json_cannot_be_told():
    with pytest.raises(ValueError, match="cannot be told"):
        Expectation("json['a'] == 1").holds(HttpAnswer(200, {}, "<html>", 0.0))


@given(st.text(max_size=40))
def test_no_text_raises_anything_else(text):
    try:
        told = Expectation(text)
    except UsageError:
        return
    try:
        told.holds(ANSWER)
    except ValueError:
        return
