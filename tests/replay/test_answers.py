"""Answers are laid out for every process of a commit, in the format that the recorder reads, and only those."""

from __future__ import annotations

import itertools
import json
import stat
import sys
from pathlib import Path

import pytest

from inprocess.conftest import INPROCESS
from relive.model.branch import Clock
from relive.recording.events import WITHIN_A_CALL, Event, EventKind
from relive.recording.writer import RecordingWriter
from relive.replay.answers import AnswerFiles
from relive.replay.inprocess_events import (
    EventWindow,
    read_window,
    request_again,
    request_at_the_end,
    request_inside,
)

sys.path.insert(0, str(INPROCESS))
from relive_recorder import context
from relive_recorder.playing.answers import read_answers, read_body, read_started

sys.path.remove(str(INPROCESS))

TAKEN = 1_000_000_000_000
_numbers = itertools.count(1)


def event(
    kind: EventKind, pid: int, mono_ns: int, request: int = 0, data: bytes = b"", **fields: object
) -> Event:
    number = next(_numbers)
    inside = {"pid": pid, "own_seq": number, "lane": 1, "thread": 5, **fields}
    return Event(number, mono_ns, mono_ns, kind, 0, request, data, inside)


@pytest.fixture
def rings(tmp_path: Path) -> Path:
    made = tmp_path / "rings"
    made.mkdir()
    (made / "7-1f.ring").touch()
    (made / "8-2f.ring").touch()
    (tmp_path / "bodies").mkdir()
    return made


def lay(rings: Path, *events: Event, clock: Clock = Clock.RECORDED) -> Path:
    AnswerFiles(EventWindow(list(events), rings.parent / "bodies"), TAKEN, {"*": "fail"}, clock).lay(rings)
    return rings / "answers"


def test_processes_that_were_started_by_exec_are_listed_by_their_commands(rings):
    """Not those of the commit, and not those that were forked."""
    laid = lay(
        rings,
        event(EventKind.PROCESS_STARTED, 7, TAKEN - 1, command=["python", "old.py"]),
        event(EventKind.PROCESS_STARTED, 9, TAKEN + 1, command=["python", "new.py"]),
        event(EventKind.PROCESS_STARTED, 10, TAKEN + 2, forked_from=9),
        event(EventKind.PROCESS_STARTED, 9, TAKEN + 3, command=["python", "newer.py"]),
    )
    started = read_started(str(laid))
    assert [words[1] for _, words in started.commands] == ["new.py", "newer.py"]
    assert started.nothing().policy == {"*": "fail"}
    for name, _ in started.commands:
        assert read_answers(str(laid), name).events[0].kind == "process-started"


def test_what_was_part_of_another_call_is_no_answer(rings):
    asked = {"asked": {"url": "/"}, "answer": None}
    laid = lay(
        rings,
        event(EventKind.HTTP_CALL, 7, TAKEN + 1, 3, lane=1 + WITHIN_A_CALL, **asked),
        event(EventKind.HTTP_CALL, 7, TAKEN + 2, 3, **asked),
    )
    assert [one.lane for one in read_answers(str(laid), "7.jsonl").events] == [1]
    assert context.WITHIN == WITHIN_A_CALL


def test_the_recorder_reads_what_was_laid_out(rings):
    asked = {"asked": {"url": "/"}, "answer": None}
    (rings.parent / "bodies" / "7-1.body").write_bytes(b"long")
    laid = lay(
        rings,
        event(EventKind.HTTP_CALL, 7, TAKEN + 1, 3, b"\x00data", **asked),
        event(EventKind.HTTP_CALL, 7, TAKEN + 2, 3, file="7-1.body", **asked),
        event(EventKind.HTTP_CALL, 7, TAKEN + 3, 3, file="../../secret.body", **asked),
    )
    answers = read_answers(str(laid), "7.jsonl")
    assert [one.kind for one in answers.events] == ["http-call"] * 3
    first = answers.events[0]
    assert (first.request, first.lane, first.body(), first.fields) == (3, 1, b"\x00data", asked)
    assert (answers.policy, answers.clock) == ({"*": "fail"}, "recorded")
    assert read_body(str(laid), "7-1.body") == b"long"
    assert sorted(path.name for path in laid.iterdir()) == ["7-1.body", "7.jsonl", "8.jsonl", "started.json"]
    assert {stat.S_IMODE(path.stat().st_mode) for path in laid.iterdir()} == {0o644}


def test_a_process_of_the_commit_that_did_nothing_has_a_file_without_events(rings):
    assert read_answers(str(lay(rings)), "8.jsonl").events == []


def test_processes_forked_later_are_children_of_their_parents_in_order(rings):
    """Also where a number of a process of the commit is given again."""
    laid = lay(
        rings,
        event(EventKind.PROCESS_STARTED, 9, TAKEN + 1, 4, forked_from=7),
        event(EventKind.CLOCK, 9, TAKEN + 2, source="time.time", value=1),
        event(EventKind.PROCESS_STARTED, 10, TAKEN + 3, forked_from=9),
        event(EventKind.PROCESS_STARTED, 8, TAKEN + 4, forked_from=7),
        event(EventKind.CLOCK, 8, TAKEN + 5, source="time.time", value=2),
        event(EventKind.PROCESS_STARTED, 11, TAKEN + 6, argv=["python"]),
    )
    first, second = read_answers(str(laid), "7.jsonl").children
    assert (first[0].partition("-")[0], first[1:], second[0].partition("-")[0]) == ("9", [4, 1], "8")
    assert [one.kind for one in read_answers(str(laid), first[0]).events] == ["process-started", "clock"]
    assert read_answers(str(laid), first[0]).children[0][0].startswith("10-")
    assert read_answers(str(laid), "8.jsonl").events == []


def test_processes_that_serve_requests_know_each_other(rings):
    laid = lay(
        rings,
        event(EventKind.HANDLING_STARTED, 7, TAKEN + 1, 1, method="GET", target="/"),
        event(EventKind.CLOCK, 8, TAKEN + 1, source="time.time", value=1),
        clock=Clock.NOW,
    )
    assert read_answers(str(laid), "8.jsonl").siblings == ["7.jsonl"]
    assert read_answers(str(laid), "7.jsonl").siblings == []
    assert json.loads((laid / "7.jsonl").read_text().splitlines()[0])["clock"] == "real"


def test_a_window_holds_what_happened_between_two_times_and_counts_what_is_missing(tmp_path):
    directory = tmp_path / "inside"
    writer = RecordingWriter(directory, segment_bytes=4096)
    for number in range(1, 301):
        if not 200 < number <= 205:
            fields = {"pid": 7, "own_seq": number, "lane": 1, "source": "x" * 50, "value": number}
            writer.append(EventKind.CLOCK, fields=fields, at=(number * 10**9, 0))
            writer.flush()
    writer.close()
    assert len(list(directory.glob("*.events"))) > 3
    window = read_window(directory, 190 * 10**9, 210 * 10**9)
    assert window is not None
    values = [one.fields["value"] for one in window.events]
    assert values == [*range(189, 201), *range(206, 213)]
    assert (window.lost, window.left_out, window.damage) == (5, 0, None)
    assert read_window(tmp_path / "nothing", 0, 1) is None


class Seen:
    """As much of an exchange as is looked at."""

    method, target = "GET", "/"
    started_mono_ns, ended_mono_ns = 100, 200
    local_port = 5000

    def is_handled_as(self, method: object) -> bool:
        return method == self.method


def started(mono_ns: int, request: int, port: int | None = 5000, pid: int = 7, target: str = "/") -> Event:
    peer = {} if port is None else {"peer": ["127.0.0.1", port]}
    return event(EventKind.HANDLING_STARTED, pid, mono_ns, request, method="GET", target=target, **peer)


def test_the_proxys_request_is_found_inside_by_its_connection_and_time():
    events = [started(90, 1), started(110, 2, 6000), started(120, 3), started(130, 4), started(210, 5)]
    assert request_inside(events, Seen()) == (7, 3)
    assert request_inside([started(120, 3, None)], Seen()) == (7, 3)
    assert request_inside([started(120, 3, 6000), started(150, 4, target="/x")], Seen()) is None


def test_in_a_branch_it_has_its_number_or_is_known_by_what_it_is():
    assert request_again([started(5, 3)], (7, 3), Seen()) == (7, 3)
    assert request_again([started(5, 9, pid=8), started(6, 1, target="/x")], (7, 3), Seen()) == (8, 9)
    assert request_again([], (7, 3), Seen()) is None
    other = [started(5, 3, target="/x"), started(6, 1, pid=8)]
    assert request_again(other, (7, 3), Seen()) == (8, 1), "its number there is another request's"
    assert request_again(other[:1], (7, 3), Seen()) == (7, 3), "nothing else was asked for it"
    assert request_again([started(5, 9)], (7, 3), None) is None


def test_of_two_equal_requests_the_connection_tells_which_it_is_in_a_branch():
    """Both came to one worker there, so the recorded one's number is the other one's; with no port told it stays a guess."""
    of_other, own = started(5, 3, 50), started(6, 4, 60)
    assert request_again([of_other, own], (7, 3), Seen(), 60) == (7, 4)
    assert request_again([of_other], (7, 3), Seen(), 60) is None, "its own has not begun yet"
    assert request_again([started(5, 3, None), started(6, 4, None)], (7, 3), Seen(), 60) == (7, 3)


def test_what_a_service_did_last_is_the_request_whose_handler_did_not_end():
    ended = event(EventKind.HANDLING_ENDED, 7, 7, 2)
    assert request_at_the_end([started(5, 1), started(6, 2), ended]) == (7, 1)
    assert request_at_the_end([started(6, 2), ended]) is None
