"""Delays at events of a recorder, by a seed and by a list; what runs in an event loop is left alone."""

from __future__ import annotations

import asyncio
import json
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from relive_inprocess import relive_chaos

PLAIN = {"switch_interval": None, "kinds": ["query"]}


class FakeRecorder:
    """Notes what is emitted; ``emit`` calls ``emit_json`` where its fields say so, as the real one does without its part in C."""

    def __init__(self) -> None:
        self.events: list[tuple[str, dict[str, Any]]] = []

    def mode(self) -> int:
        return 2

    def emit(self, kind: str, fields: dict[str, Any], data: bytes = b"", request: int | None = None) -> int:
        if fields.get("slow"):
            return self.emit_json(kind, json.dumps(fields), data, request)
        self.events.append((kind, fields))
        return len(self.events)

    def emit_json(self, kind: str, fields: str, data: bytes = b"", request: int | None = None) -> int:
        self.events.append((kind, json.loads(fields)))
        return len(self.events)


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> FakeRecorder:
    fake, module, context = FakeRecorder(), ModuleType("recorder"), ModuleType("context")
    calls = ModuleType("calls")
    calls._watched = lambda _channel, asked, perform: (perform(), asked)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "relive_recorder.calls", calls)
    module.recorder, module.REPLAY = fake, 2  # type: ignore[attr-defined]
    context.place = lambda: (7, 1)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "relive_recorder.recorder", module)
    monkeypatch.setitem(sys.modules, "relive_recorder.context", context)
    monkeypatch.setattr(relive_chaos.os, "getpid", lambda: 5)
    return fake


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    found: list[float] = []
    monkeypatch.setattr(relive_chaos, "_sleep", found.append)
    return found


def vary(**wanted: Any) -> Any:
    return json.loads(relive_chaos.answer(json.dumps({**PLAIN, **wanted})))


def test_listed_places_are_delayed_once_each_and_noted(recorder, slept):
    assert vary(delays={"5:7:1:2": 40, "5:9:1:1": 10}) == {"recorded": True}
    for fields in ({"n": 1}, {"n": 2, "slow": True}, {"n": 3}):
        recorder.emit("query", fields)
    recorder.emit("clock", {})
    recorder.emit("query", {"n": 4}, request=9)
    assert slept == [0.04, 0.01]
    notes = [fields for kind, fields in recorder.events if kind == "note"]
    assert notes == [
        {"about": "chaos", "text": "5:7:1:2", "ms": 40.0},
        {"about": "chaos", "text": "5:9:1:1", "ms": 10.0},
    ]


def test_a_local_call_is_delayed_before_it_is_made(recorder, slept):
    vary(delays={"5:7:1:b2": 40, "5:7:1:2": 10})
    local, remote = (SimpleNamespace(kind="query", local=local) for local in (True, False))
    performing = sys.modules["relive_recorder.calls"]._watched
    found = []
    for channel in (local, remote, local):
        found.append(performing(channel, "asked", lambda: list(slept)))
        recorder.emit("query", {})
    assert found == [([], "asked"), ([], "asked"), ([0.01], "asked")], "only the place of a local call counts"
    assert slept == [0.01]
    vary(seed=3, rate=1.0, most_ms=50, within=["5:8"])
    performing(local, "asked", lambda: None)
    assert slept == [0.01], "of another request"
    vary(seed=3, rate=1.0, most_ms=50, within=["5:7"])
    sys.modules["relive_recorder.calls"]._watched(local, "asked", lambda: None)
    assert len(slept) == 2


def test_events_that_are_json_already_count_too(recorder, slept):
    vary(delays={"5:7:1:1": 5})
    assert recorder.emit_json("query", "{}") == 1
    assert slept == [0.005]


def test_a_seed_delays_some_places_and_the_same_ones_each_time(recorder, slept):
    vary(seed=3, rate=0.5, most_ms=20)
    for _ in range(200):
        recorder.emit("query", {})
    wanted = {"seed": 3, "rate": 0.5, "most_ms": 20}
    expected = [relive_chaos.delay_of(wanted, f"5:7:1:{number}") / 1000 for number in range(1, 201)]
    assert slept == [one for one in expected if one]
    assert 60 < len(slept) < 140 and max(slept) <= 0.02


def test_code_in_an_event_loop_is_not_delayed(recorder, slept):
    vary(delays={"5:7:1:1": 5})

    async def work() -> None:
        recorder.emit("query", {})

    asyncio.run(work())
    assert slept == [] and recorder.events == [("query", {})]
    recorder.emit("query", {})
    assert slept == [0.005]


def test_the_switch_interval_is_set_also_where_nothing_is_recorded(monkeypatch):
    monkeypatch.delitem(sys.modules, "relive_recorder.recorder", raising=False)
    before = sys.getswitchinterval()
    try:
        assert vary(switch_interval=0.0005, delays={}) == {"recorded": False}
        assert sys.getswitchinterval() == pytest.approx(0.0005)
    finally:
        sys.setswitchinterval(before)


def test_what_cannot_be_done_is_told():
    assert "failed" in json.loads(relive_chaos.answer("{}"))
