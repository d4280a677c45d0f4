"""What may differ in a replay: words that name nothing are refused, since they would silently do nothing."""

from __future__ import annotations

import pytest

from relive.errors import UsageError
from relive.operations.policies import check_ignore


@pytest.mark.parametrize(
    "text",
    [
        *(
            "header:Date",
            "query:page",
            "body",
            "body:$.id",
            "event:query",
            "event:query:$.asked.parameters[0]",
        ),
        *(
            "$.parameters[0]",
            "$['a b'][*].id",
            "body:$",
            "body:$.items[*].id",
            "event:clock:$",
            "path",
            "host",
            "method",
        ),
    ],
)
def test_what_names_something_is_taken_as_it_is(text):
    assert check_ignore(text) == text


@pytest.mark.parametrize(
    "text",
    [
        *("nonsense", "", "header:", "event:nosuch", "body:id", "event:", "Header:Date"),
        *("$", "$id", "$.a b[", "body:$id", "body:$.items[x]", "event:query:$asked", "event:note"),
    ],
)
def test_what_names_nothing_is_refused(text):
    with pytest.raises(UsageError, match="--ignore cannot be"):
        check_ignore(text)


def test_where_only_the_inside_is_compared_other_names_are_refused():
    assert check_ignore("event:clock", inside_only=True) == "event:clock"
    for text in ("header:date", "body:$.id", "$.parameters[0]"):
        with pytest.raises(UsageError, match="only what happened inside the service is compared"):
            check_ignore(text, inside_only=True)
