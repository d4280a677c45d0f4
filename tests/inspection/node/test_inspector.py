"""The inspector's client: what it makes of answers, silence and an end. The real one is asked in ``tests/real/test_node.py``."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosedOK

from relive.inspection.node.inspector import Inspector, InspectorGone, InspectorLate, named_port


class Scripted:
    """A connection that says what is in a list, then nothing."""

    def __init__(self, *said: Any) -> None:
        self.said = list(said)
        self.sent: list[dict[str, Any]] = []

    def send(self, text: str) -> None:
        self.sent.append(json.loads(text))

    def recv(self, timeout: float) -> str:
        if not self.said:
            raise TimeoutError
        told = self.said.pop(0)
        if isinstance(told, Exception):
            raise told
        return told if isinstance(told, str) else json.dumps(told)


def inspector(*said: Any, seconds: float = 5.0) -> Inspector:
    return Inspector(Scripted(*said), time.monotonic() + seconds)  # type: ignore[arg-type]


def test_an_answer_is_found_behind_events_which_are_kept():
    asked = inspector(
        {"method": "Debugger.paused", "params": {"callFrames": []}}, {"id": 1, "result": {"value": 3}}
    )
    assert asked.ask("Runtime.evaluate", expression="3") == {"value": 3}
    assert asked.await_event("Debugger.paused", lambda: False) == {"callFrames": []}
    assert asked.connection.sent[0]["params"] == {"expression": "3"}  # type: ignore[attr-defined]


def test_an_event_that_never_comes_ends_when_the_caller_says_so():
    assert inspector().await_event("Debugger.paused", lambda: True) is None


def test_silence_and_an_end_are_told_apart():
    with pytest.raises(InspectorLate):
        inspector(seconds=0).ask("Debugger.enable")
    with pytest.raises(InspectorGone):
        inspector(ConnectionClosedOK(None, None)).ask("Debugger.enable")
    with pytest.raises(InspectorGone):
        inspector({"method": "NodeRuntime.waitingForDisconnect"}).ask("Runtime.evaluate")


@pytest.mark.parametrize(
    "said", ["no JSON", {"id": 1, "error": {"message": "nothing such"}}, {"id": 1}, [1], "null"]
)
def test_what_is_no_answer_is_an_error_that_is_told_as_not_understood(said):
    with pytest.raises((ValueError, KeyError, TypeError, AttributeError)):
        inspector(said).ask("Debugger.enable")


@pytest.mark.parametrize(
    ("words", "port"),
    [
        (["node", "app.js"], 9229),
        (["node", "--inspect=9333", "app.js"], 9333),
        (["node", "--inspect-port=0.0.0.0:9444", "app.js", "--inspect"], 9444),
        (["node", "app.js", "--inspected=1"], 9229),
    ],
)
def test_the_port_is_the_one_that_options_name(words, port):
    assert named_port(words) == port
