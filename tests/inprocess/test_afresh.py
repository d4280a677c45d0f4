"""A process that begins in a replay: real before the judged request, recorded in it."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from relive.recording.events import EventKind

from .conftest import Ran, each_python

PROGRAM = """
import json, os, time
from relive_recorder import calls, context, playing
from relive_recorder.calls import Channel, through
from relive_recorder.context import Request

class Echo(Channel):
    kind = "http-call"

def ask(text, perform=lambda: "real"):
    try:
        return through(Echo(), {"text": text}, perform)
    except ConnectionError:
        return "none"

def request(target):
    number = playing.recognise({"method": "GET", "target": target})
    return number, context.begin(Request(number, {}))

def say(*what):
    print(json.dumps(what), flush=True)
"""


def call(seq: int, text: str, answer: Any, request: int = 0) -> list[Any]:
    return [seq, "http-call", 1, request, {"asked": {"text": text}, "answer": answer}, ""]


def clock(seq: int, value: float, request: int = 0) -> list[Any]:
    return [seq, "clock", 1, request, {"source": "time.time", "value": value}, ""]


STARTED = [10, "handling-started", 1, 5, {"method": "GET", "target": "/pay?key=<secret:00000001>"}, ""]


@pytest.fixture
def play(tmp_path: Path, run_recorded: Callable[..., Ran]) -> Callable[..., Ran]:
    def run(program: str, request: Any, beginning: Any, *python: str, judged: int = 5, **header: Any) -> Ran:
        answers = tmp_path / "rings" / "answers"
        answers.mkdir(parents=True)
        about = {
            "format": "relive-answers",
            "version": 1,
            "policy": {"*": "fail"},
            "judged": judged,
            **header,
        }
        for name, events in (("1.jsonl", request), ("2.jsonl", beginning)):
            (answers / name).write_text("".join(json.dumps(line) + "\n" for line in (about, *events)))
        return run_recorded(PROGRAM + program, *python, answers=["1.jsonl", "2.jsonl"])

    return run


def said(ran: Ran) -> list[Any]:
    assert (ran.status, ran.err) == (0, ""), ran.err
    return [json.loads(line) for line in ran.out.splitlines()]


@each_python
def test_before_the_request_time_is_real_and_in_it_all_is_as_recorded(play, python):
    ran = play(
        """
say(ask("version"), ask("version"), ask("version"), ask("mine"), time.time() > 1000)
number, token = request("/pay?key=<secret:0000000f>")
say(number, ask("mine"), ask("mine"), ask("version"), time.time())
context.end(token)
say(ask("mine"), request("/other")[0])
""",
        [STARTED, call(11, "mine", "recorded", 5), clock(12, 100.5, 5)],
        [call(2, "version", "first"), call(3, "version", "second")],
        python,
    )
    first, second, third = said(ran)
    assert first == ["first", "second", "second", "real", True]
    assert second == [5, "recorded", "none", "second", 100.5]
    assert third == ["real", 6]
    misses = [(one.fields["asked"]["text"], one.fields["policy"]) for one in ran.of(EventKind.MISS)]
    assert misses == [("mine", "pass"), ("mine", "fail"), ("mine", "pass")]
    assert [one.fields["about"] for one in ran.of(EventKind.NOTE)] == ["beginning"]


def test_placeholders_of_secrets_are_equal_to_each_other(play):
    ran = play(
        'number, token = request("/pay?key=<secret:0000000f>")\nsay(ask("by <secret:0000000a>"))',
        [STARTED, call(11, "by <secret:0000000b>", "recorded", 5)],
        [],
    )
    assert said(ran) == [["recorded"]]


def test_a_program_without_requests_is_answered_as_a_whole(play):
    ran = play(
        'say(ask("a"), ask("b"), ask("a"), time.time())',
        [call(2, "a", 1), call(3, "b", 2), clock(4, 7.5)],
        [],
        judged=0,
    )
    assert said(ran) == [[1, 2, "none", 7.5]]


def test_what_every_server_answers_alike_needs_no_recorded_answer(play):
    """A fix commits where the recorded request had rolled back; what begins a session may end a transaction, too."""
    ran = play(
        """
class Ends(Echo):
    def simulated(self, asked):
        return calls.KeptAnswer({"answer": "ended", "simulated": True}, b"") if asked["text"] == "COMMIT" else None

def end(text):
    try:
        return through(Ends(), {"text": text}, lambda: "real")
    except ConnectionError:
        return "none"

before = end("COMMIT")
number, token = request("/pay?key=<secret:00000001>")
say(before, end("ROLLBACK"), end("COMMIT"), end("SELECT 1"))
""",
        [STARTED, call(11, "ROLLBACK", "recorded", 5)],
        [],
    )
    assert said(ran) == [["ended", "recorded", "ended", "none"]]
    assert [one.fields["asked"]["text"] for one in ran.of(EventKind.MISS)] == ["SELECT 1"]
    told = [(one.fields["played"], one.fields.get("simulated")) for one in ran.of(EventKind.HTTP_CALL)]
    assert told == [(True, True), (True, None), (True, True)]


def test_each_worker_may_be_the_one_that_gets_the_request(play):
    ran = play(
        """
for _ in range(2):
    if os.fork() == 0:
        number, token = request("/pay?key=<secret:00000001>")
        say(number, ask("mine"))
        os._exit(0)
    os.wait()
""",
        [STARTED, call(11, "mine", "recorded", 5)],
        [],
    )
    assert said(ran) == [[5, "recorded"]] * 2


def test_answers_that_are_damaged_are_said_and_no_call_is_answered(play):
    ran = play('say(ask("a"))', [call(2, "a", 1)], [], judged=-1)
    assert ran.status == 0
    assert "refused" in ran.err
    assert json.loads(ran.out) == ["none"]


def test_bodies_are_there_for_calls_before_and_in_the_request(play, tmp_path):
    kept = base64.b64encode(b"body").decode()
    ran = play(
        """
class Body(Echo):
    def rebuild(self, kept):
        return kept.data.decode()
say(through(Body(), {"text": "a"}, None))
number, token = request("/pay?key=<secret:00000001>")
say(through(Body(), {"text": "b"}, None))
""",
        [STARTED, [11, "http-call", 1, 5, {"asked": {"text": "b"}}, kept]],
        [[2, "http-call", 1, 0, {"asked": {"text": "a"}}, kept]],
    )
    assert said(ran) == [["body"], ["body"]]
