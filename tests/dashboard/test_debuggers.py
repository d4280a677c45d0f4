"""Debuggers of pages: one of an incident, talked to from any thread, a few at once; and their page."""

from __future__ import annotations

import json
import os
import select
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from relive.config import Settings
from relive.dashboard import debuggers
from relive.dashboard.debuggers import DEBUGGERS, Debugger
from relive.errors import Cancelled, RestoreFailed, UsageError
from relive.operations.subprocess_runner import Talk
from relive.stepping.live import Breakpoint, Stop
from relive.stepping.stepping_session import StackFrame, Variable
from relive.stepping.view import SteppingView
from support.waiting import LIMIT, eventually

HOSTILE = "<script>alert(1)</script>"
STOP = Stop(stopped="step", position=4, sum=1, file="/srv/app.py", line=8, function="pay", source="x")
VIEW = SteppingView(
    said=f"@4 {HOSTILE}",
    stop=STOP,
    last=9,
    frames=[StackFrame(file=f"/srv/{HOSTILE}.py", line=8, function=HOSTILE, own=True)],
    first=7,
    line=8,
    lines=["def pay():", f"    return {HOSTILE!r}"],
    variables=[Variable(HOSTILE, "str", f"'{HOSTILE}'")],
    breakpoints=[Breakpoint("app.py", 8, HOSTILE)],
    watches=[HOSTILE],
    bookmarks={HOSTILE: 2},
)


class Process:
    """In the place of the one that goes forward and back: it answers each command by its words."""

    def __init__(self) -> None:
        self.may_answer = threading.Event()
        self.may_answer.set()
        self.error: Exception | None = None

    def __call__(
        self, _operation: Any, _settings: Any, _params: Any, progress: Any, *, cancel: Any, talk: Talk
    ) -> None:
        progress.status("Replaying.")
        with os.fdopen(os.dup(talk.commands), "rb", buffering=0) as commands:
            talk.shown(VIEW.model_dump(mode="json"))
            while not cancel.wait(0.005):
                if self.error is not None:
                    raise self.error
                if not select.select([commands], [], [], 0)[0]:
                    continue
                said = json.loads(commands.readline())
                if said == "quit":
                    return
                assert self.may_answer.wait(LIMIT)
                talk.shown(VIEW.model_copy(update={"said": said}).model_dump(mode="json"))
        raise Cancelled("debug was cancelled")


@pytest.fixture
def process(monkeypatch: pytest.MonkeyPatch) -> Process:
    made = Process()
    monkeypatch.setattr(debuggers, "perform_apart", made)
    return made


@pytest.fixture
def opened(process: Process, home: Path) -> Iterator[Callable[[int], Debugger]]:
    made = []

    def begin(number: int) -> Debugger:
        found = DEBUGGERS.begin(Settings(home=home), number)
        found.wait(LIMIT)
        made.append(found)
        return found

    yield begin
    for one in made:
        one.end()
        one.await_end(LIMIT)


def test_it_answers_one_command_at_a_time_and_says_which_runs(process, opened):
    debugger = opened(1)
    view = debugger.standing().view
    assert view == VIEW and debugger.standing().doing is None
    process.may_answer.clear()
    debugger.say("continue", patience=0)
    debugger.say("step", patience=0)  # it is not given: the answer would be taken for another's
    assert debugger.standing().doing == "continue" and debugger.standing().view == VIEW
    process.may_answer.set()
    debugger.wait(LIMIT)
    assert debugger.standing().view.said == "continue"
    debugger.say("quit", LIMIT)
    debugger.await_end(LIMIT)
    standing = debugger.standing()
    assert standing.has_ended and standing.error is None and standing.doing is None
    debugger.say("step", LIMIT)  # nobody is there


def test_one_that_dies_says_why_until_another_is_begun(process, opened, home):
    debugger = opened(1)
    process.error = RestoreFailed("the commit did not come to life")
    debugger.await_end(LIMIT)
    assert debugger.standing().error is process.error
    assert DEBUGGERS.of(home, 1) is debugger and DEBUGGERS.of(home, 2) is None
    process.error = None
    assert opened(1) is not debugger and DEBUGGERS.of(home, 1) is not debugger


def test_pages_of_one_incident_share_one_and_only_a_few_go_on_at_once(opened, home):
    first = opened(1)
    assert opened(1) is first
    for number in (2, 3, 4):
        opened(number)
    with pytest.raises(UsageError, match="4 debuggers are open") as refused:
        opened(5)
    assert "incidents 1, 2, 3, 4" in str(refused.value.remedy)
    first.end()
    first.await_end(LIMIT)
    assert not opened(5).standing().has_ended


def shown(app: AppTest) -> str:
    marked = [one.proto.body for one in app.get("html")]
    labels = [one.label for one in app.button]
    return "\n".join(
        [*marked, *labels, *(one.value for one in app.caption), *(one.value for one in app.info)]
    )


def test_its_page_has_all_of_it_and_what_a_service_says_is_text(look, opened, home):
    debugger = opened(7)
    app = look("debug", number=7)
    told = shown(app)
    assert "<script>" not in told and "&lt;script&gt;" in told
    assert "<span class=rl-ran>" in told and app.slider[0].value == 4 and app.slider[0].max == 9
    for key, said in (
        ("reverse-step", "reverse-step"),
        ("line 7", f"break /srv/{HOSTILE}.py:7"),
        (f"bookmark {HOSTILE}", f"goto {HOSTILE}"),
        ("frame 0", "frame 0"),
    ):
        app.button(key).click().run()
        debugger.wait(LIMIT)
        assert not app.exception and debugger.standing().view.said == said
    app.slider[0].set_value(2).run()
    debugger.wait(LIMIT)
    assert debugger.standing().view.said == "goto 2"
    app.run().button("end").click().run()
    debugger.await_end(LIMIT)
    assert "It has ended" in shown(app.run())
    app.button("begin").click().run()
    again = DEBUGGERS.of(home, 7)
    again.wait(LIMIT)
    assert again is not debugger and "reverse-continue" in {one.key for one in app.run().button}
    again.end()


def test_while_a_command_runs_its_page_takes_no_other(look, opened, process):
    debugger = opened(7)
    process.may_answer.clear()
    debugger.say("continue", patience=0)
    app = look("debug", number=7)
    assert app.button("step").disabled and not app.button("end").disabled
    process.may_answer.set()
    eventually(lambda: debugger.standing().doing is None, "the command ends")
    assert not app.run().button("step").disabled
