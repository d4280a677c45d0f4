"""Steps from inside answered otherwise, candidates from a good request's steps, and whether a branch asked for what was changed."""

from __future__ import annotations

from typing import Any

import pytest

from relive.errors import ChangeUnfit
from relive.intervention.answers import with_change
from relive.intervention.candidates import candidates
from relive.intervention.changing import Changed, unread
from relive.intervention.grammar import CallName, parse_answer
from relive.intervention.steps import Step
from relive.recording.events import Event, EventKind

QUERY = {"system": "postgresql", "statement": "select id, price from items"}
JSON = ["content-type", "application/json"]


def step(label: str, number: int = 1, *, what: str = "it", data: bytes = b"", **fields: Any) -> Step:
    kinds = {"query": EventKind.QUERY, "http": EventKind.HTTP_CALL, "redis": EventKind.REDIS_COMMAND}
    kind = kinds.get(label) or EventKind(label)
    event = Event(number, 5, 5, kind, 0, 1, data, {"pid": 7, **fields})
    return Step(CallName(None, label, number), kind, 60, what, "", event=event)


def rows(*values: list[Any]) -> Step:
    return step("query", asked=QUERY, answer={"columns": ["id", "price"], "rows": list(values)})


def http(status: int, body: bytes, *, what: str = "GET http://rates/CHF") -> Step:
    answer = {"status": status, "reason": "", "headers": [JSON, ["content-encoding", "identity"]]}
    return step("http", what=what, data=body, asked={"method": "GET"}, answer=answer)


def changed(one: Step, text: str) -> Event:
    made = with_change(one, parse_answer(text))
    assert isinstance(made, Event)
    return made


def test_rows_as_a_whole_and_in_part():
    one = rows([1, {"$": ["decimal", "4.5"]}], [2, None])
    assert changed(one, "query:1$[1].price=3").fields["answer"]["rows"][1] == [2, 3]
    answer = changed(one, 'query:1=[[9, "7"]]').fields["answer"]
    assert (answer["rows"], answer["rowcount"]) == ([[9, {"$": ["decimal", "7"]}]], 1)
    for wrong in ("query:1=7", "query:1=[[1]]", "query:1=fail:reset", "query:1=delay:1s"):
        with pytest.raises(ChangeUnfit):
            changed(one, wrong)
    cut = step("query", asked=QUERY, answer={"rows": [], "rows_cut": 3})
    with pytest.raises(ChangeUnfit, match="in part"):
        changed(cut, "query:1$[0].price=3")


def test_answers_of_http():
    one = http(200, b'{"factor": null}')
    made = changed(one, "http:1=503")
    assert made.data == one.event.data and made.fields["answer"]["status"] == 503
    made = changed(one, "http:1$.factor=2")
    assert made.data == b'{"factor": 2}'
    assert made.fields["answer"]["headers"] == [JSON, ["content-length", "13"]]
    error = changed(one, "http:1=fail:reset").fields
    assert error["error"]["type"] == "builtins.ConnectionResetError" and "answer" not in error
    assert changed(one, "http:1=fail:TimeoutError:slow").fields["error"]["type"] == "builtins.TimeoutError"


def test_values_of_redis():
    one = step("redis", asked={"command": ["GET", "k"]}, answer={"$": ["utf8", "1"]})
    assert changed(one, 'redis:1="2"').fields["answer"] == {"$": ["utf8", "2"]}
    assert changed(one, "redis:1=null").fields["answer"] is None
    assert changed(one, "redis:1=fail:error:OOM").fields["error"]["type"].endswith("ResponseError")


@pytest.mark.parametrize(
    ("source", "recorded", "value", "read"),
    [
        ("time.time", 1000.0, "+1h", 4600.0),
        ("time.time_ns", 1000, "-1us", 0),
        ("time.time", 1000.0, "1970-01-01T00:00:05", 5.0),
        ("time.monotonic", 1000.0, "7", 7.0),
        (
            "datetime.now",
            {"$": ["datetime", "2026-11-23T10:00:00+00:00", 0]},
            "2027-01-01T00:00:00",
            {"$": ["datetime", "2027-01-01T00:00:00+00:00", 0]},
        ),
        (
            "datetime.now",
            {"$": ["datetime", "2026-11-23T10:00:00", 0]},
            "-1d",
            {"$": ["datetime", "2026-11-22T10:00:00", 0]},
        ),
    ],
)
def test_readings_of_clocks(source, recorded, value, read):
    assert changed(step("clock", source=source, value=recorded), f"clock:1={value}").fields["value"] == read


def test_a_clock_that_counts_from_no_moment_and_a_number_of_another_kind_are_refused():
    for one, text in (
        (step("clock", source="time.monotonic", value=1.0), "clock:1=2027-01-01"),
        (step("clock", source="time.time_ns", value=1), "clock:1=1.5"),
        (step("random", source="random.randint", value=1), 'random:1="a"'),
        (step("random", source="random.random", value=0.5), "random:1=fail:reset"),
    ):
        with pytest.raises(ChangeUnfit):
            changed(one, text)


def written(failing: list[Step], good: list[Step]) -> dict[str, list[str]]:
    found = candidates(failing, good)
    return {group: [one.written for one in changes] for group, changes in found.items() if changes}


def test_candidates_are_the_cells_and_fields_that_differ():
    assert written([rows([2, None])], [rows([1, 4])]) == {
        "answers": ["query:1$[0].id=1", "query:1$[0].price=4"]
    }
    assert written([rows([2, None])], [rows([1, 4], [5, 6])]) == {"answers": ["query:1=[[1, 4], [5, 6]]"]}
    assert written([rows([1, 4])], [rows([1, 4])]) == {}
    other = http(200, b'{"factor": 1.5}', what="GET http://rates/EUR")
    assert written([http(200, b'{"factor": null}')], [other]) == {"answers": ["http:1$.factor=1.5"]}
    assert written([http(503, b"")], [other]) == {"answers": ['http:1=200 {"factor": 1.5}']}


def test_readings_are_candidates_of_their_own_and_other_statements_none():
    clock = [step("clock", what="time.time", source="time.time", value=float(at)) for at in (1, 2)]
    assert written(clock[:1], clock[1:]) == {"clock": ["clock:1=2.0"]}
    other = step("query", what="select 1", asked=QUERY, answer={"rows": [[1]]})
    assert written([rows([2, None])], [other]) == {}


def test_what_a_branch_did_not_ask_for_is_named():
    place = (1, "query", '{"statement": "select 1"}')
    expected = Changed(None, inside=((place, 2, "query:2"),), border={(4, 0): "http:1"})  # type: ignore[arg-type]
    fields = {"asked": {"statement": "select 1"}, "played": True}
    came = Event(1, 1, 1, EventKind.QUERY, 0, 1, b"", fields)
    assert unread(expected, [came], []) == ["query:2", "http:1"]
    assert unread(expected, [came, came], [(4, 0)]) == []
