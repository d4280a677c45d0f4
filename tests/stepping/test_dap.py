"""What an editor asks by the Debug Adapter Protocol, and what it is told; over a socket in ``test_dap_server``."""

from __future__ import annotations

from typing import Any

import pytest

from relive.stepping.dap import DapAdapter

from .test_stepping_session import made  # noqa: F401 - the request that is always the same


class Editor:
    def __init__(self, timeline: Any) -> None:
        self.adapter = DapAdapter(timeline, "request 7 (GET /)", "KeyError: 'CHF'")
        self.seq = 0

    def ask(self, command: str, **arguments: Any) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        """(the response, events)."""
        self.seq += 1
        request = {"seq": self.seq, "type": "request", "command": command, "arguments": arguments}
        response, *events = self.adapter.handle(request)
        assert (response["request_seq"], response["command"]) == (self.seq, command)
        return response, events

    def where(self) -> int:
        return int(self.ask("evaluate", expression="here")[0]["body"]["result"])


@pytest.fixture
def editor(made) -> Editor:  # noqa: F811
    return Editor(made[0])


def test_it_says_that_it_steps_back_and_begins_at_the_failure(editor):
    response, events = editor.ask("initialize", adapterID="relive")
    assert response["body"]["supportsStepBack"] and [one["event"] for one in events] == ["initialized"]
    assert editor.ask("attach")[0]["success"]
    _, events = editor.ask("configurationDone")
    assert [(one["event"], one["body"]["reason"]) for one in events] == [("stopped", "exception")]
    assert events[0]["body"]["text"].startswith("KeyError: 'CHF'")
    assert editor.where() == 5
    assert editor.ask("pause", threadId=1)[0]["success"], "it stands"
    assert editor.ask("threads")[0]["body"]["threads"] == [{"id": 1, "name": "request 7 (GET /)"}]


def test_buttons_go_forward_and_back(editor):
    editor.ask("configurationDone")
    moved = []
    for command in ("stepBack", "stepBack", "stepBack", "stepIn", "stepOut", "continue"):
        response, events = editor.ask(command, threadId=1)
        assert response["success"] and events[0]["body"]["threadId"] == 1
        moved.append(editor.where())
    assert moved == [1, 1, 1, 2, 5, 6]  # its end shows its last line
    assert "ended" in events[0]["body"]["description"]


def test_breakpoints_of_a_file_take_the_place_of_those_before(editor):
    editor.ask("configurationDone")
    source = {"path": "/srv/app.py"}
    editor.ask("setBreakpoints", source=source, breakpoints=[{"line": 22}])
    response, _ = editor.ask("setBreakpoints", source=source, breakpoints=[{"line": 20}, {"line": 21}])
    assert [one["verified"] for one in response["body"]["breakpoints"]] == [True, True]
    assert [editor.ask("reverseContinue")[1][0]["body"]["reason"] for _ in range(3)] == [
        "breakpoint",
        "breakpoint",
        "step",
    ]
    assert editor.where() == 2  # the third found nothing more


def test_breakpoints_that_were_set_before_it_runs_are_checked_when_it_stands_in_a_line(editor):
    """As Visual Studio Code begins: all breakpoints it has, of other programs too, then configurationDone."""
    editor.ask("initialize")
    editor.ask("attach")
    wanted = [{"line": 20}, {"line": 3}, {"line": 21, "condition": "nope"}]
    response, _ = editor.ask("setBreakpoints", source={"path": "/srv/app.py"}, breakpoints=wanted)
    told = response["body"]["breakpoints"]
    assert [one["verified"] for one in told] == [False] * 3
    editor.ask("setExceptionBreakpoints", filters=[])
    _, events = editor.ask("configurationDone")
    *changed, stopped = events
    assert stopped["body"]["reason"] == "exception"
    assert [(one["event"], one["body"]["reason"]) for one in changed] == [("breakpoint", "changed")] * 3
    changed = [one["body"]["breakpoint"] for one in changed]
    assert [one["id"] for one in changed] == [one["id"] for one in told]
    assert [one["verified"] for one in changed] == [True, False, False]
    assert "no function" in changed[1]["message"] and "cannot be evaluated" in changed[2]["message"]
    editor.ask("reverseContinue")
    assert editor.where() == 2


def test_what_a_variable_holds_is_unfolded_and_what_is_reached_by_names_can_be_watched(editor):
    editor.ask("configurationDone")
    scopes = editor.ask("scopes", frameId=1)[0]["body"]["scopes"]
    assert [(one["name"], one["expensive"]) for one in scopes] == [
        ("Locals", False),
        ("Globals of shop.app", True),
    ]
    inner, outer = (one["variablesReference"] for one in scopes)

    def unfold(reference: int) -> dict[str, dict[str, Any]]:
        found = editor.ask("variables", variablesReference=reference)[0]["body"]["variables"]
        return {one["name"]: one for one in found}

    def data_id(reference: int, name: str) -> str | None:
        return editor.ask("dataBreakpointInfo", variablesReference=reference, name=name)[0]["body"]["dataId"]

    locals_, globals_ = unfold(inner), unfold(outer)
    order, cache = (one["variablesReference"] for one in (locals_["order"], globals_["cache"]))
    assert locals_["password"]["variablesReference"] == 0 and order and cache
    held = unfold(order)
    assert held["'api_key'"]["value"] != "'k'", "masked, by its own name"
    assert held["0"]["variablesReference"] == 0 and "evaluateName" not in held["0"]
    assert unfold(cache)["'CHF'"]["evaluateName"] == "(cache)['CHF']"
    assert data_id(outer, "cache") == "shop.app.cache" and data_id(inner, "order") is None
    watched = data_id(cache, "'CHF'")
    assert watched == "(shop.app.cache)['CHF']"
    response, _ = editor.ask("setDataBreakpoints", breakpoints=[{"dataId": watched}])
    assert response["body"]["breakpoints"] == [{"verified": True}]
    editor.ask("stepBack")
    for command in ("variables", "dataBreakpointInfo"):
        refused, _ = editor.ask(command, variablesReference=outer, name="cache")
        assert not refused["success"] and "has moved since" in refused["message"], "numbers are of one stop"


def test_what_cannot_be_meant_is_refused_and_the_session_goes_on(editor):
    editor.ask("configurationDone")
    for command, arguments in (("fly", {}), ("setBreakpoints", {}), ("scopes", {"frameId": "x"})):
        response, events = editor.ask(command, **arguments)
        assert not response["success"] and response["message"] and not events
    response, *_ = editor.adapter.handle({"type": "request", "arguments": 7})
    assert not response["success"]
    assert editor.where() == 5
    editor.ask("disconnect")
    assert editor.adapter.has_ended
