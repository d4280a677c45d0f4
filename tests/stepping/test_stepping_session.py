"""Forward and back on a request that is always the same, and on one that is not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from relive.errors import DebuggerSilent, PlaceUnfit, ReplayDiverged, UsageError
from relive.incidents.report.masking import MASK
from relive.stepping.commands import DebuggerCommands
from relive.stepping.live import Breakpoint, Stop, StopTarget
from relive.stepping.stepping_session import SteppingSession

LINES = [10, 20, 21, 22, 11, 12]  # `handle` calls `rate_of` in its first line
DEPTHS = [0, 1, 1, 1, 0, 0]


CHILDREN = {
    "locals": [
        ("password", "str", "'x'", "password", False),
        ("order", "Order", "z" * 9000, "order", True),
    ],
    "globals": [("cache", "dict", "{'CHF': None}", "cache", True)],
    "cache": [("'CHF'", "NoneType", "None", "(cache)['CHF']", False)],
    "order": [("'api_key'", "str", "'k'", "(order)['api_key']", False), ("0", "set", "{}", None, True)],
}


@dataclass
class Fake:
    """A branch of that request. ``wrong``: another line is run at that position."""

    target: StopTarget
    breakpoints: list[Breakpoint]
    watches: list[str]
    wrong: int = 0
    elsewhere: bool = False
    silent: bool = False
    closed: bool = False
    at: int = 0

    def go(self, target: StopTarget, breakpoints: list[Breakpoint], watches: list[str]) -> None:
        self.target, self.breakpoints = target, breakpoints

    def is_elsewhere(self) -> bool:
        return self.elsewhere

    def wait(self, limit: float) -> Stop | None:
        if self.elsewhere:
            return None
        began, last_hit = self.at, None
        while self.at < len(LINES):
            self.at += 1
            line = LINES[self.at - 1] + (100 if self.at == self.wrong else 0)
            is_hit = any(one.line == line for one in self.breakpoints)
            if self.target.scan and is_hit and self.at < self.target.position:
                last_hit = self.at
            how = self.target.how
            if (how == "position" and self.at == self.target.position) or (
                how not in ("end", "position") and (is_hit or self._stops(how, began))
            ):
                checksum = hash((self.at, self.at >= self.wrong > 0))
                return Stop(
                    stopped="step",
                    position=self.at,
                    sum=checksum,
                    file="app.py",
                    line=line,
                    function="f",
                    source="x",
                    last_hit=last_hit,
                )
        return None

    def _stops(self, how: str, began: int) -> bool:
        depth, before = DEPTHS[self.at - 1], DEPTHS[began - 1]
        return how == "step" or (how == "next" and depth <= before) or (how == "out" and depth < before)

    @property
    def following(self) -> Any:
        return SimpleNamespace(came_to=lambda: (len(LINES), 5))

    def outcome(self) -> None:
        return None

    def ask(self, what: str, kind: Any, **more: Any) -> Any:
        return kind.model_validate(self._answer(what, **more))

    def _answer(self, what: str, **more: Any) -> dict[str, Any]:
        if what == "find":
            here = self.at
            for at in range(here - 1, 0, -1):
                is_hit = any(line == LINES[at - 1] for _, line in more["breakpoints"])
                depth, now = DEPTHS[at - 1], DEPTHS[here - 1]
                how = more["how"]
                if how == "step" or (how == "next" and depth <= now) or (how == "continue" and is_hit):
                    return {"position": at, "sum": hash((at, at >= self.wrong > 0))}
            return {"position": None, "sum": None}
        if what == "place":
            if more["line"] not in LINES:
                raise PlaceUnfit("no function of the service has code in that line")
            return {"file": more["file"], "line": more["line"]}
        if what == "check":
            if more["expression"] == "nope":
                raise PlaceUnfit("'nope' cannot be evaluated in the process")
            return {}
        if what == "stack":
            frames = [("/srv/app.py", LINES[self.at - 1], "f", True), ("/lib/x.py", 7, "<run>", False)]
            return {
                "frames": [dict(zip(("file", "line", "function", "own"), one, strict=True)) for one in frames]
            }
        if what == "source":
            return {"first": 1, "line": 2, "lines": ["y" * 1000] * 90}
        if what == "children":
            if self.silent:
                raise DebuggerSilent("the debugger gave no answer")
            return {"values": CHILDREN[more["scope"] or more["expression"]], "module": "shop.app"}
        if more.get("expression") == "hang":
            raise DebuggerSilent("the debugger gave no answer")
        return {"type": "int", "text": str(self.at), "raised": False, "holds": False}

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def made() -> tuple[SteppingSession, list[Fake]]:
    fakes: list[Fake] = []

    def restored(target: StopTarget, breakpoints: list[Breakpoint], watches: list[str]) -> Any:
        fakes.append(Fake(target, breakpoints, watches))
        return fakes[-1]

    return SteppingSession(restored), fakes


def position(stop: Stop | None) -> int | None:
    return stop.position if stop is not None else None


def test_from_the_failure_back_and_forward_and_one_branch_at_a_time(made):
    line, fakes = made
    assert position(line.go_to_failure()) == 5
    assert [position(line.back("step")), position(line.back("next")), position(line.back("next"))] == [
        4,
        3,
        2,
    ]
    assert position(line.forward("next")) == 3
    assert position(line.forward("out")) == 5
    assert line.forward("continue") is None and line.last == len(LINES)
    assert position(line.back("step")) == len(LINES)
    assert position(line.go_to(1)) == 1 and line.back("step") is None and position(line.stop) == 1
    line.close()
    assert all(one.closed for one in fakes)


def test_a_step_back_takes_the_branch_that_was_made_ahead_and_few_live_at_once(made):
    line, fakes = made
    line.is_ahead = True
    assert position(line.go_to_failure()) == 5
    for expected in (4, 3, 2, 1):
        assert line._spare is not None
        line._spare.made.result()
        before = len(fakes)
        assert position(line.back("step")) == expected
        assert len(fakes) <= before + 1
        assert sum(not one.closed for one in fakes) <= 3  # one of them is being ended
    assert line._spare is None and line.back("step") is None
    line.forward("step")
    line.close()
    line.close()
    assert all(one.closed for one in fakes) and len(fakes) <= 8


def test_a_replay_in_another_worker_is_not_taken_for_the_one_that_failed(made):
    """Only lines of the worker that had the request in the recording are shown."""
    line, fakes = made
    right, others = line.restored, 0

    def restored(*asked: Any) -> Any:
        nonlocal others
        branch = right(*asked)
        others += 1
        branch.elsewhere = others % 3 != 0
        return branch

    line.restored = restored
    assert position(line.go_to_failure()) == 5
    assert position(line.back("step")) == 4
    assert [one.elsewhere for one in fakes] == [True, True, False] * 3
    line.close()
    assert all(one.closed for one in fakes)


def test_where_the_worker_never_gets_the_request_that_is_told(made):
    line, fakes = made
    right = line.restored

    def restored(*asked: Any) -> Any:
        branch = right(*asked)
        branch.elsewhere = True
        return branch

    line.restored = restored
    with pytest.raises(ReplayDiverged, match="in the worker that had it"):
        line.go_to_failure()
    assert fakes and all(one.closed for one in fakes)


def test_what_cannot_be_watched_is_refused_at_once_and_no_place_is_lost(made):
    commands = DebuggerCommands(made[0])
    commands.opening()
    assert "cannot be evaluated" in commands.do("watch nope")
    assert "cannot be evaluated" in commands.do("break app.py:20 if nope")
    assert "has code in that line" in commands.do("break app.py:99")
    assert commands.do("info").startswith("No stops")
    assert commands.do("rs").startswith("@4")


def test_values_of_secret_names_are_masked(made):
    line, _ = made
    line.go_to(5)
    assert line.evaluate("settings.password").text == MASK and line.evaluate("here").text == "5"


def test_a_checkpoint_that_could_not_be_made_is_done_without(made):
    line, _ = made
    line.go_to_failure()
    again, asked = line.restored, []

    def fails_once(*words: Any) -> Any:
        asked.append(words)
        if len(asked) == 1:
            raise DebuggerSilent("no room")
        return again(*words)

    line.restored, line.is_ahead = fails_once, True
    line.forward("step")
    assert position(line.back("step")) == 5 and len(asked) > 1
    line.close()


def test_back_to_a_breakpoint_with_a_condition_is_looked_for_on_the_way(made):
    line, fakes = made
    line.go_to_failure()
    line.breakpoints.append(Breakpoint("app.py", 20, "x"))
    assert position(line.back("continue")) == 2
    assert fakes[-2].target == StopTarget("position", 5, scan=True)
    assert line.back("continue") is None and position(line.stop) == 2


def test_a_replay_that_goes_another_way_is_told_and_no_place_is_shown(made):
    line, fakes = made
    line.go_to_failure()
    again = line.restored

    def otherwise(*asked: Any) -> Any:
        fake = again(*asked)
        fake.wrong = 2
        return fake

    line.restored = otherwise
    with pytest.raises(ReplayDiverged, match="another way"):
        line.back("step")
    assert line.stop is None
    line.restored = again
    assert position(line.go_to(4)) == 4 and not fakes[-1].closed
    line.close()
    assert all(one.closed for one in fakes)


def test_an_expression_that_hangs_is_told_and_it_stands_where_it_stood(made):
    line, fakes = made
    line.go_to(3)
    with pytest.raises(DebuggerSilent):
        line.evaluate("hang")
    assert position(line.stop) == 3 and not fakes[1].closed
    line.forward("continue")
    with pytest.raises(UsageError, match="stands in no line"):
        line.evaluate("x")


@pytest.fixture
def said(made) -> Callable[[str], str]:
    commands = DebuggerCommands(made[0])
    assert commands.opening().startswith("@5 app.py:11 f\n-> x")
    return commands.do


def test_commands_go_and_look(said):
    assert said("rs").startswith("@4 ") and said("bookmark here") == "@4 is here."
    assert said("s").startswith("@5 ") and said("g here").startswith("@4 [here] ")
    assert said("p anything") == "anything = 4"
    assert said("start").startswith("@1 ") and "nothing before" in said("rc")
    assert said("c") == "The request has ended, after @6."
    assert said("") == ""


def test_stops_are_numbered_and_taken_away(said):
    assert said("b app.py:20 if x > 1") == "1 break app.py:20 if x > 1"
    assert said('watch app.cache["x"]').endswith('2 watch app.cache["x"]')
    assert said("delete 1") == '1 watch app.cache["x"]'
    assert said("delete all") == "No stops, no bookmarks."


@pytest.mark.parametrize("text", ["fly", "b app.py", "g nowhere", "g 0", "delete 7", "watch", "bookmark"])
def test_what_cannot_be_meant_is_told_and_the_session_goes_on(said, text):
    answer = said(text)
    assert answer.startswith(("Error: ", "There is no command"))
    assert said("rs").startswith("@4 ")
