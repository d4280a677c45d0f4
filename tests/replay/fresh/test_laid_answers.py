"""What is laid beside the rings of fresh processes."""

from __future__ import annotations

import json

from relive.recording.events import EventKind
from relive.replay.fresh.recorded_answers import is_whole, judged_events, write_answers

from .cases import case, clock, event, query, started


def test_a_requests_own_events_are_judged_and_the_beginning_has_calls_only(tmp_path):
    outside = query(41, "of nobody", request=0)
    begun = [event(EventKind.PROCESS_STARTED, 1, 0), clock(2, 1.0), query(3, "version", request=0)]
    given = case(started(), outside, query(42, "mine"), beginning=begun)
    write_answers(given, tmp_path, {}, has_request=True)
    header, *lines = map(json.loads, (tmp_path / "answers/1.jsonl").read_text().splitlines())
    assert (header["judged"], header["clock"], header["policy"]) == (12, "recorded", {"*": "fail"})
    assert [(line[1], line[3]) for line in lines] == [("handling-started", 12), ("query", 12)]
    _, *lines = map(json.loads, (tmp_path / "answers/2.jsonl").read_text().splitlines())
    assert [line[4]["asked"]["sql"] for line in lines] == ["version"]
    assert "pid" not in lines[0][4]


def test_programs_that_a_program_starts_are_run_unless_one_asks_otherwise(tmp_path):
    for number, (policy, wanted) in enumerate(
        [
            ({}, {"*": "fail", "subprocess": "pass"}),
            ({"*": "pass", "subprocess": "fail"}, {"*": "pass", "subprocess": "fail"}),
        ]
    ):
        (tmp_path / str(number)).mkdir()
        write_answers(program(beginning=[]), tmp_path / str(number), policy, has_request=False)
        assert json.loads((tmp_path / f"{number}/answers/1.jsonl").read_text())["policy"] == wanted


def test_long_bodies_come_along_and_names_that_are_none_do_not(tmp_path):
    bodies = tmp_path / "bodies"
    bodies.mkdir()
    (bodies / "7-1.body").write_bytes(b"long")
    (tmp_path / "rings").mkdir()
    calls = [
        event(EventKind.HTTP_CALL, 42, asked={}, answer={}, file=name)
        for name in ("7-1.body", "7-2.body", "../../etc/passwd")
    ]
    write_answers(case(started(), *calls, bodies=bodies), tmp_path / "rings", {}, has_request=True)
    names = sorted(path.name for path in (tmp_path / "rings/answers").iterdir())
    assert names == ["1.jsonl", "2.jsonl", "7-1.body"]


def program(*events, beginning):
    return case(*events, beginning=beginning, request=None, where="main")


def test_a_program_is_answered_from_its_beginning_to_its_end():
    begun = [event(EventKind.PROCESS_STARTED, 1, 0), clock(2, 1.0), query(3, "first", 0)]
    given = program(clock(2, 1.0), query(3, "first", 0), clock(4, 2.0), beginning=begun)
    assert is_whole(given)
    assert [one.fields["own_seq"] for one in judged_events(given, has_request=False)] == [1, 2, 3, 4]


def test_readings_of_a_program_of_which_the_middle_is_not_kept_would_come_at_the_wrong_place():
    given = program(clock(90, 9.0), query(91, "last", 0), beginning=[clock(2, 1.0), query(3, "first", 0)])
    assert not is_whole(given)
    kinds = [one.kind for one in judged_events(given, has_request=False)]
    assert kinds == [EventKind.QUERY, EventKind.QUERY]


def test_a_job_is_done_outside_of_any_queue():
    job = {"number": 12, "server": "rq", "method": "tasks.charge", "target": "q/1"}
    given = case(
        started(server="rq"), query(41, "mine"), clock(42, 5.0, 12), query(43, "other", 0), request=job
    )
    made = judged_events(given, has_request=False)
    assert [(one.kind, one.request) for one in made] == [(EventKind.QUERY, 0), (EventKind.CLOCK, 0)]
