"""Which earlier requests name what the judged one names."""

from __future__ import annotations

import json

import pytest

from relive.intervention.related import named_values, related_numbers

CROWD = {number: frozenset({"payments", str(1000 + number)}) for number in range(10, 210)}


def test_requests_that_share_a_rare_value_are_related_and_the_judged_one_is_not():
    named = CROWD | {
        1: named_values("/payments", json.dumps({"account": 474, "amount": 3}).encode()),
        2: named_values("/accounts/474", b""),
        3: named_values("/accounts/475?page=3", b""),
        4: named_values("/payments", json.dumps({"account": 474, "amount": 3.5}).encode()),
    }
    assert related_numbers(named, 4) == {1, 2}


def test_a_value_that_many_name_says_nothing_and_where_few_requests_are_all_may_share_one():
    assert related_numbers(CROWD, 10) == frozenset()
    assert related_numbers({1: named_values("/read/k", b""), 2: named_values("/check/k", b"")}, 2) == {1}


@pytest.mark.parametrize(
    ("body", "found"),
    [
        (b'{"a": [{"b": "x"}, true, null, 1.5]}', {"p", "x", "1.5"}),
        (b"no json", {"p"}),
        (b"\xff\xfe", {"p"}),
        (b"[" * 100_000, {"p"}),
        (b'"' + b"y" * 300 + b'"', {"p"}),
    ],
)
def test_what_a_body_names(body: bytes, found: set[str]):
    assert named_values("/p", body) == found
