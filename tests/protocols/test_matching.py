"""What is compared of a question, what differs, and in which words."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relive.protocols.matching import compared, differences, takes_any_answer
from relive.recording.events import EventKind

HTTP, S3, REDIS, QUERY = EventKind.HTTP_CALL, EventKind.S3_CALL, EventKind.REDIS_COMMAND, EventKind.QUERY
JSON = {"content-type": "application/json; charset=utf-8"}


def http(
    url: str = "http://h/a", headers: dict[str, str] | None = None, body: Any = "", method: str = "GET"
) -> dict[str, Any]:
    return {"method": method, "url": url, "headers": headers or {}, "body": body}


def differ(kind: EventKind, one: Any, other: Any, *ignore: str) -> tuple[str, ...]:
    return differences(kind, compared(kind, one, ignore), compared(kind, other, ignore))


@pytest.mark.parametrize(
    ("one", "other", "names"),
    [
        (http("http://h/a?x=1&y=2"), http("http://H/a?y=2&x=1"), ()),
        (http("http://h"), http("https://h/"), ()),
        (http("http://h/a?x=1&x=2"), http("http://h/a?x=2&x=1"), ("query:x",)),
        (http("http://h/a?x="), http("http://h/a"), ("query:x",)),
        (http("http://h:81/a"), http("http://h/b"), ("host", "path")),
        (http(headers={"a": "1"}), http(headers={"b": "1"}), ("header:a", "header:b")),
        (
            http(headers=JSON, body='{"a":[1,{"b":2}]}'),
            http(headers=JSON, body='{"a":[1,{"b":3}]}'),
            ("body:$.a[1].b",),
        ),
        (http(headers=JSON, body='{"a b":1}'), http(headers=JSON, body="{}"), ("body:$['a b']",)),
        (http(headers=JSON, body="[1]"), http(headers=JSON, body="[1,2]"), ("body:$",)),
        (http(headers=JSON, body="{broken"), http(headers=JSON, body="{ broken"), ("body",)),
        (http(body='{"a":1}'), http(body='{ "a":1}'), ("body",)),
    ],
)
def test_http_calls(one, other, names):
    assert differ(HTTP, one, other) == names
    assert differ(HTTP, one, other, *names) == ()


@pytest.mark.parametrize(
    "ignore",
    [
        "body:$.items[*].at",
        "body:$.items[*]",
        "body:$.items",
        "body:$",
        "body",
        "body:$.*[1].a*",
        "body:$.items[1]",
    ],
)
def test_what_lies_beneath_a_name_is_left_out(ignore):
    one = http(headers=JSON, body='{"items":[{"at":1,"n":1},{"at":1,"n":2}]}')
    other = http(headers=JSON, body='{"items":[{"at":1,"n":1},{"at":3,"n":2}]}')
    assert differ(HTTP, one, other) == ("body:$.items[1].at",)
    assert differ(HTTP, one, other, ignore) == ()


def test_headers_and_parameters_are_left_out_by_pattern():
    one = http("http://h/a?utm_a=1&q=1", {"x-b3-id": "1", "x-c": "1"})
    other = http("http://h/a?utm_b=1&q=1", {"x-b3-id": "2", "x-c": "1"})
    assert differ(HTTP, one, other, "header:X-B3-*", "query:utm_*") == ()
    assert differ(HTTP, one, other, "url", "headers") == ()


def test_what_is_left_out_twice_is_left_out():
    one, other = http(headers=JSON, body='{"a":1}'), http(headers=JSON, body='{"a":2}')
    assert differ(HTTP, one, other, "body", "body:$.a", "headers", "header:x") == ()


def test_json_that_is_nested_too_deep_is_text():
    deep = "[" * 100_000 + "]" * 100_000
    wide = "[" + ",".join(["[]"] * 300) + "]"
    assert compared(HTTP, http(headers=JSON, body=deep))["body"] == deep
    assert compared(HTTP, http(headers=JSON, body="[" * 300 + "]" * 300))["body"] == "[" * 300 + "]" * 300
    assert isinstance(compared(HTTP, http(headers=JSON, body=wide))["body"], list)


def test_of_s3_the_operation_says_nothing_that_the_url_does_not():
    one = {"operation": "GetObject", "bucket": "b", **http("http://h/b/k?X-Amz-Signature=1")}
    other = {"operation": "x", "bucket": "b", **http("http://h/b/k?X-Amz-Signature=2")}
    assert differ(S3, one, other) == ()
    assert differ(HTTP, one, other) == ("query:X-Amz-Signature",)


def test_redis_commands():
    one: dict[str, Any] = {"server": "h:1", "command": ["set", "k", "1"]}
    other = {"server": "h:1", "command": ["SET", "k", "2"]}
    assert differ(REDIS, one, other) == ("$.command[2]",)
    assert differ(REDIS, one, other, "$.command[2]") == ()
    assert differ(REDIS, one, other, "command") == ()
    several = {"server": "h:1", "commands": [["incr", "n"]], "transaction": True}
    assert differ(REDIS, several, {**several, "commands": [["INCR", "n"]]}) == ()


def test_everything_else_is_compared_as_it_is():
    assert differ(
        QUERY, {"statement": "a", "parameters": [1, 2]}, {"statement": "a", "parameters": [1, 3]}
    ) == ("$.parameters[1]",)


@pytest.mark.parametrize(
    "ignore", ["$", "$x", "$.command[", "$.command[x]", "body:none", ":", "", "header:", "$.a.b.c"]
)
def test_a_name_that_stands_for_nothing_leaves_nothing_out(ignore):
    one: dict[str, Any] = {"command": ["GET", "k"]}
    assert compared(REDIS, one, [ignore]) == one


@given(
    st.recursive(
        st.none() | st.integers() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
@settings(max_examples=40, deadline=None)
def test_what_differs_can_be_ignored(value):
    one, other = {"field": value}, {"field": {"an": "other"}}
    names = differ(QUERY, one, other)
    assert names or value == {"an": "other"}
    if all("*" not in name and "?" not in name and "'" not in name for name in names):
        assert differ(QUERY, one, other, *names) == ()


def test_no_more_differences_are_looked_for_than_are_asked_for():
    one, other = {"a": list(range(100))}, {"a": [0] * 100}
    assert len(differences(QUERY, one, other, 3)) == 3


@pytest.mark.parametrize(
    ("name", "takes_any"),
    [
        *(("$.statement", True), ("$.s*", True), ("$.command", True), ("$.command[0]", True)),
        *(("$.commands[0][0]", True), ("method", True), ("path", True), ("url", True), ("statement", True)),
        *(("$.parameters[0]", False), ("$.command[1]", False), ("header", False), ("header:x", False)),
        *(("query", False), ("query:ts", False), ("body", False), ("body:$.id", False), ("host", False)),
    ],
)
def test_what_a_question_is_about_is_known(name: str, takes_any: bool) -> None:
    """Of the host nothing is said here: to which server a question went is known beside it."""
    assert takes_any_answer(name) is takes_any
