"""Requests of one route and steps that ask the same are told by their shape."""

from __future__ import annotations

import pytest

from relive.incidents.report.shapes import route, shape
from relive.incidents.report.timeline import Row
from relive.recording.events import EventKind


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("/orders/17?x=1", "/orders/18"),
        ("/u/0b1c2d3e-1111-2222-3333-444455556666", "/u/9f8e7d6c-aaaa-bbbb-cccc-1234567890ab"),
        ("/a/3.5/b", "/a/12/b"),
    ],
)
def test_routes_that_differ_in_values_are_one(one, other):
    assert route("GET", one) == route("GET", other)


@pytest.mark.parametrize(("one", "other"), [("/orders/17", "/orders"), ("/decade", "/facade"), ("/a", "/b")])
def test_other_routes_are_others(one, other):
    assert route("GET", one) != route("GET", other)
    assert route("GET", one) != route("POST", one)


def test_calls_alike_but_for_values_and_the_query_have_one_shape():
    def http(what: str) -> Row:
        return Row(source="inside", seq=1, kind=EventKind.HTTP_CALL, at_ns=0, what=what, result="")

    assert shape(http("GET http://rates:80/EUR?day=1")) == shape(http("GET http://rates:80/EUR?day=2&x"))
    assert shape(http("GET http://rates:80/EUR")) != shape(http("GET http://rates:80/USD"))
