"""Sums over a process's values: those of two states differ where a value does, and what is told then is what differs."""

from __future__ import annotations

import gc
import json
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from relive.inspection.python.values import BUCKETS
from relive_inprocess import relive_inspector as inspector
from relive_inprocess.relive_inspector import walk
from relive_inprocess.relive_inspector.parts_of_values import steps_in

_ALL = {"depth": 12, "most": 10_000, "buckets": BUCKETS, "seconds": 60.0, "summed": None}


class Held:
    """Has attributes."""

    def __init__(self, number: int) -> None:
        self.name = f"the {number}th"
        self.rest = [number, number / 2, None, b"x" * number]


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """What the service's modules lead to."""
    held: dict[str, Any] = {f"key {number}": Held(number) for number in range(300)}
    held["again"] = held["key 7"]
    monkeypatch.setattr(walk, "roots", lambda: [("held", held), ("plain", 5)])
    yield held
    gc.enable()


def asked(kind: str, **more: Any) -> Any:
    return json.loads(inspector.answer(json.dumps({"kind": kind, **_ALL, **more})))


def differing(before: Any, after: Any) -> list[int]:
    return [
        number
        for number, (one, other) in enumerate(zip(before["sums"], after["sums"], strict=True))
        if one != other
    ]


def test_the_same_state_has_the_same_sums_and_all_values(world: dict[str, Any]) -> None:
    sums = asked("sums")
    assert sums == asked("sums") and not sums["cut"]
    every = asked("changed", among=list(range(BUCKETS)))
    assert every == asked("dump") and len(every["values"]) == sums["count"]
    assert every["values"]["held['again']"] == "the same as held['key 7']"


class Unbound:
    """As ``flask.request`` outside of a request."""

    @property
    def __dict__(self) -> Any:  # type: ignore[override]
        raise RuntimeError("working outside of a request")


def test_a_proxy_that_stands_for_nothing_hides_no_other_value(world: dict[str, Any]) -> None:
    before = asked("dump")["values"]
    world["request"] = Unbound()
    assert asked("dump")["values"].items() > before.items() - {("held", before["held"])}
    assert asked("sums")["count"] == len(before) + 1


@pytest.mark.parametrize(
    ("old", "new"),
    [(1, True), (1, 1.0), (-1, -2), ("1", 1), (b"a", bytearray(b"a")), ([], {}), (0, (1 << 61) - 1)],
)
def test_values_that_are_equal_or_have_equal_hashes_are_told_apart(
    world: dict[str, Any], old: Any, new: Any
) -> None:
    world["key 47"].rest[2] = old
    before = asked("sums")
    world["key 47"].rest[2] = new
    among = differing(before, asked("sums"))
    assert 1 <= len(among) <= 2
    assert "held['key 47'].rest[2]" in asked("changed", among=among)["values"]


def test_what_came_and_went_is_among_what_differs(world: dict[str, Any]) -> None:
    before = asked("sums")
    del world["key 8"]
    world["new"] = Held(1)
    after = asked("sums")
    told = asked("changed", among=differing(before, after))["values"]
    assert "held['new'].rest[3]" in told and before["count"] == after["count"]
    assert "held['key 9'].name" not in told


def test_sums_stop_where_they_are_told_and_say_so(world: dict[str, Any]) -> None:
    assert asked("sums", most=100)["count"] == 100 and asked("sums", most=100)["cut"]
    assert asked("sums", seconds=-1.0) == {"sums": [0] * BUCKETS, "count": 0, "cut": True, "is_whole": False}
    few = asked("changed", among=list(range(BUCKETS)), summed=100)["values"]
    assert len(few) == 100


def test_of_many_entries_those_that_are_equal_are_not_looked_into(
    world: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """GIVEN an object that an equal entry holds and a changed one, too THEN no value of it is told as changed."""
    shared = Held(7)
    world["key 1"].rest[1] = world["key 200"].rest[1] = shared
    before = asked("sums")
    world["key 200"].rest[2] = "changed"
    among = differing(before, asked("sums"))
    looked_into = []
    monkeypatch.setattr(walk, "steps_in", lambda value: looked_into.append(value) or steps_in(value))
    after = asked("changed", among=among)["values"]
    assert len(looked_into) < 10
    world["key 200"].rest[2] = None
    old = asked("changed", among=among)["values"]
    assert [path for path in after if after[path] != old.get(path)] == ["held['key 200'].rest[2]"]
    assert old.keys() == after.keys()


def test_what_the_recorder_noted_on_an_object_is_no_value_of_it(world: dict[str, Any]) -> None:
    world["key 5"]._relive_where = ("localhost", 6379)
    assert not any("_relive_" in path for path in asked("dump")["values"])


@pytest.mark.parametrize("make", [threading.Lock, threading.RLock])
def test_a_lock_tells_whether_it_is_held(world: dict[str, Any], make: Callable[[], Any]) -> None:
    lock = world["key 5"].rest[2] = make()
    before = asked("sums")
    lock.acquire()
    told = asked("changed", among=differing(before, asked("sums")))["values"]
    assert told["held['key 5'].rest[2]"].startswith("locked _thread.")
    assert asked("dump")["values"]["held['key 5'].rest[2]"] == told["held['key 5'].rest[2]"]
