"""Which values of Python are said to differ between two commits of one start of a service."""

from __future__ import annotations

import copy
import gc
import json
import threading
from collections.abc import Iterator
from typing import Any, cast

import pytest

from relive.inspection.python.branches import AskedBranch
from relive.inspection.python.values import BUCKETS, PythonSums, PythonValues
from relive.operations import differences
from relive.operations.differences import DiffParams
from relive_inprocess import relive_inspector as inspector
from relive_inprocess.relive_inspector import walk

_turn = threading.Lock()  # both are asked at once, and here in one process


class State:
    """A branch whose service holds one value; ``enough``: of how many values there is time for sums."""

    def __init__(self, held: Any, monkeypatch: pytest.MonkeyPatch, *, enough: int = 10_000) -> None:
        self._held, self._monkeypatch, self._enough = held, monkeypatch, enough

    def sums(self, *, depth: int, most: int, limit: float) -> PythonSums:
        assert limit
        most = min(most, self._enough)
        return PythonSums(process=1, **self._ask("sums", depth=depth, most=most, seconds=60.0))

    def values_among(
        self, among: list[int], *, summed: int | None, depth: int, most: int, limit: float
    ) -> PythonValues:
        assert limit
        told = self._ask("changed", among=among, summed=summed, depth=depth, most=most)
        return PythonValues(process=1, **told)

    def _ask(self, kind: str, **more: Any) -> Any:
        with _turn:
            self._monkeypatch.setattr(walk, "roots", lambda: [("app", self._held)])
            return json.loads(inspector.answer(json.dumps({"kind": kind, "buckets": BUCKETS, **more})))


@pytest.fixture(autouse=True)
def collecting() -> Iterator[None]:
    yield
    gc.enable()


def changed(before: State, after: State) -> dict[str, tuple[str | None, str | None]]:
    asked = [cast(AskedBranch, one) for one in (before, after)]
    found = differences._values_of_one_life(asked, DiffParams(before="a", after="b"))
    return {one.name: (one.before, one.after) for one in found.changes}


def deep() -> Any:
    """What leads further down than is looked."""
    value: Any = [1, [2]]
    for _ in range(differences._DEPTH):
        value = [value]
    return value


def test_what_stands_behind_a_list_that_has_grown_is_not_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """GIVEN a service with values too deep to be compared THEN all others are, however many came before them."""
    old: dict[str, Any] = {"audit": [["hold", 1]], "holds": {"r5": "z"}, "flag": [False], "deep": deep()}
    new = copy.deepcopy(old)
    new["audit"] += [["hold", number] for number in range(2, 100)]
    new["flag"][0] = True
    found = changed(State(old, monkeypatch), State(new, monkeypatch))
    assert found["app['flag'][0]"] == ("False", "True")
    assert all("audit" in name or "flag" in name for name in found)


def test_what_was_not_come_to_is_not_called_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """GIVEN more values than are compared THEN a growing list pushes others out of sight, of which nothing is said."""
    old: dict[str, Any] = {"flag": 1, "audit": [["x"] for _ in range(40)], "last": [[["old"]]]}
    new = copy.deepcopy(old)
    new["flag"] = 2
    new["audit"] += [["y"] for _ in range(100)]
    found = changed(State(old, monkeypatch, enough=90), State(new, monkeypatch, enough=100))
    assert found["app['flag']"] == ("1", "2")
    assert all(before is not None and after is not None for before, after in found.values())
