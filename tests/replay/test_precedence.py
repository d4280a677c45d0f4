"""Which recorder answers where several recorded the same call."""

from __future__ import annotations

import pytest

from relive.replay.precedence import inside_policy

TO_BORDER = {"http-call": "pass", "s3-call": "pass", "redis-command": "pass"}


@pytest.mark.parametrize(
    ("asked", "has_border", "expected"),
    [
        ({}, False, {"*": "fail"}),
        ({}, True, {"*": "fail", **TO_BORDER}),
        ({"http-call": "fail"}, True, {"*": "fail", **TO_BORDER, "http-call": "fail"}),
        ({"http-call": "reset"}, False, {"*": "fail", "http-call": "pass"}),
        ({"query": "pass"}, True, {"*": "fail", **TO_BORDER, "query": "pass"}),
        ({"*": "fail"}, True, {"*": "fail"}),
        ({"*": "pass"}, True, {"*": "pass"}),
    ],
)
def test_what_inside_has_no_answer_to_goes_to_the_border_if_that_was_recorded(
    asked: dict[str, str], has_border: bool, expected: dict[str, str]
) -> None:
    assert inside_policy(asked, has_border=has_border) == expected
