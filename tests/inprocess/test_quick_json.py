"""Events that come most often are put together as text: it is the JSON that the slow way would have given."""

from __future__ import annotations

import json
import sys

import pytest

from .conftest import INPROCESS

sys.path.insert(0, str(INPROCESS))
from relive_recorder.kinds import query
from relive_recorder.options import Options
from relive_recorder.recorder import encode, recorder
from relive_recorder.servers import handling

sys.path.remove(str(INPROCESS))


@pytest.fixture(autouse=True)
def _options(monkeypatch):
    monkeypatch.setattr(recorder, "options", Options({}))


PARAMETERS = [
    (1, 2),
    (True, 1),
    (),
    None,
    [1],
    (1, "é"),
    {"a": 1},
    (2**70,),
    tuple(range(9)),
    (1.5, b"x", None),
]


@pytest.mark.parametrize("given", PARAMETERS, ids=repr)
@pytest.mark.parametrize("statement", ["SELECT ?", "SELECT 'é\ud800'", "SELECT " + "1, " * 600, b"SELECT 1"])
def test_what_a_query_asked(given, statement):
    slow = json.loads(encode(query.asked_of("sqlite", "a.db", statement, given)))
    assert [json.loads(query.asked_json("sqlite", "a.db", statement, given)) for _ in range(2)] == [slow] * 2


@pytest.mark.parametrize("peer", [["::1", 2], [], ["é\ud800", 3], ["/run/s.sock", None]], ids=repr)
@pytest.mark.parametrize("method", ["GET", 'A"\\B'])
def test_how_a_request_began(peer, method):
    headers, text = handling.scrubbed_raw([(b"Host", b"a\xe9"), (b"cookie", b"id=s3cret-value")])
    about = {"server": "asgi", "method": method, "target": "/é", "peer": peer, "headers": headers}
    assert json.loads(handling._about_json(about, text)) == about
    assert headers == handling.scrubbed([("Host", "a\xe9"), ("cookie", "id=s3cret-value")])
    assert "s3cret" not in text


@pytest.mark.parametrize(
    "fields", [{"ns": 1, "status": 200}, {"ns": 1, "by": "file"}, {"ns": 1, "cut": True}]
)
def test_how_it_ended(fields):
    assert json.loads(handling._fields_json(fields)) == fields
