"""Docker's API: answers, what is not there, errors with cause and remedy."""

from __future__ import annotations

import pytest

from relive.containers.docker.api import get, open_stream
from relive.errors import HostIncapable, ToolMissing
from support.played_docker import played_docker

ANSWERS = {
    "/containers/web/json": (200, b'{"Id": "a1"}'),
    "/containers/odd/json": (200, b"<html>"),
    "/info": (500, b'{"message": "on fire"}'),
    "/events": (200, b'{"n": 1}\n{"n": 2}\n'),
}


@pytest.fixture
def asked(monkeypatch):
    with played_docker(ANSWERS) as (host, asked):
        monkeypatch.setenv("DOCKER_HOST", host)
        yield asked


def test_an_answer_is_parsed_and_what_is_not_there_is_none(asked):
    assert get("containers", "web", "json") == {"Id": "a1"}
    assert get("containers", "../info", "json") is None
    assert asked[-1] == "/v1.41/containers/..%2Finfo/json"


def test_a_query_is_quoted(asked):
    connection, answer = open_stream("events", filters='{"a": ["b c"]}')
    assert answer.readline() == b'{"n": 1}\n'
    connection.close()
    assert asked == ["/v1.41/events?filters=%7B%22a%22%3A+%5B%22b+c%22%5D%7D"]


@pytest.mark.parametrize(
    ("path", "part"), [(("info",), "on fire"), (("containers", "odd", "json"), "Expecting")]
)
def test_an_error_is_told_with_its_cause(asked, path, part):
    with pytest.raises(HostIncapable) as caught:
        get(*path)
    assert part in (caught.value.cause or "")


@pytest.mark.parametrize(
    ("host", "kind"), [("unix:///nowhere/d.sock", ToolMissing), ("tcp://10.0.0.1:2375", HostIncapable)]
)
def test_an_engine_that_cannot_be_reached_is_named(monkeypatch, host, kind):
    monkeypatch.setenv("DOCKER_HOST", host)
    with pytest.raises(kind) as caught:
        get("info")
    assert caught.value.remedy
    assert host.partition("://")[2] in (caught.value.cause or "")
