"""What `relive stop --all` means: branches, which are copies; what else runs is named, not ended."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from relive.config import Settings
from relive.operations import stops
from relive.operations.branches import Stopped
from relive.operations.progress import Silent
from relive.operations.stops import StopParams, stop


class Told(Silent):
    def __init__(self) -> None:
        self.said: list[str] = []

    def status(self, text: str) -> None:
        self.said.append(text)


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Two capsules and a watch run; what is to be ended is noted here."""
    calls: list[Any] = []

    def end(_settings: Settings, names: list[str], _progress: Any, **options: Any) -> Stopped:
        calls.append((names, options["every_branch"]))
        return Stopped(stopped=names)

    capsules = [SimpleNamespace(facts=SimpleNamespace(spec=SimpleNamespace(name=n))) for n in ("shop", "pay")]
    monkeypatch.setattr(stops, "living_capsules", lambda _settings: capsules)
    monkeypatch.setattr(stops, "living_watches", lambda _settings: [SimpleNamespace(target="podman:db")])
    monkeypatch.setattr(stops, "stop_named", end)
    return calls


@pytest.mark.parametrize(
    ("params", "names", "said"),
    [
        (
            StopParams(all_branches=True),
            [],
            [
                "2 capsules go on: --all is for branches, --capsules ends them too.",
                "1 watch goes on: --all is for branches, --watches ends them too.",
            ],
        ),
        (
            StopParams(all_branches=True, names=["pay"], watches=True),
            ["pay", "podman:db"],
            ["1 capsule goes on: --all is for branches, --capsules ends them too."],
        ),
        (StopParams(all_branches=True, capsules=True, watches=True), ["shop", "pay", "podman:db"], []),
        (StopParams(capsules=True, names=["pay"]), ["pay", "shop"], []),
        (StopParams(names=["b1"]), ["b1"], []),
    ],
)
def test_services_end_only_where_they_are_meant(ended, tmp_path: Path, params, names, said):
    told = Told()
    assert stop(Settings(home=tmp_path), params, told).stopped == names
    assert ended == [(names, params.all_branches)]
    assert told.said == said
