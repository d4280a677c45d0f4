"""What the params name is looked up before a process is started for it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from relive.config import Settings
from relive.errors import BranchUnknown, IncidentUnknown, NotFound, RefUnknown, ReliveError, TargetUnknown
from relive.operations import subprocess_runner
from relive.operations.catalogue import OPERATIONS
from relive.operations.subprocess_runner import perform_apart

WRONG: dict[str, tuple[dict[str, object], type[ReliveError]]] = {
    "bisect": ({"good": "nothing", "bad": "nothing", "when": "True"}, RefUnknown),
    "chaos": ({"what": "17"}, IncidentUnknown),
    "commit": ({"target": "nobody"}, TargetUnknown),
    "debug": ({"number": 17}, IncidentUnknown),
    "diff": ({"before": "nothing", "after": "nothing"}, RefUnknown),
    "divergence": ({"before": "17", "after": "run/17.recorded"}, NotFound),
    "evaluate": ({"ref": "nothing", "expression": "1"}, RefUnknown),
    "exec": ({"branch": "none", "command": ["true"]}, BranchUnknown),
    "export": ({"ref": "incident/17", "file": "/tmp/none"}, IncidentUnknown),
    "find-in-memory": ({"ref": "nothing", "pattern": "a"}, RefUnknown),
    "inspect": ({"ref": "nothing"}, RefUnknown),
    "keep": ({"incident": 17, "expect": "status == 200"}, IncidentUnknown),
    "leaks": ({"refs": ["one", "two", "three"]}, RefUnknown),
    "push": ({"ref": "nothing", "remote": "/tmp/none"}, RefUnknown),
    "python-stacks": ({"ref": "nothing"}, RefUnknown),
    "python-objects": ({"ref": "nothing"}, RefUnknown),
    "runtime-state": ({"ref": "nobody"}, RefUnknown),
    "replay": ({"what": "17"}, IncidentUnknown),
    "reproduce": ({"incident": "17"}, IncidentUnknown),
    "restore": ({"ref": "nothing"}, RefUnknown),
    "restore-as-podman": ({"ref": "nothing"}, RefUnknown),
    "restore-many": ({"ref": "nothing", "count": 2}, RefUnknown),
    "rollback": ({"branch": "none"}, BranchUnknown),
    "try": ({"incident": 17}, IncidentUnknown),
    "what-if": ({"incident": 17}, IncidentUnknown),
    "why": ({"incident": 17}, IncidentUnknown),
    "logpoint": ({"incident": 17, "at": "app.py:1", "expression": ["1"]}, IncidentUnknown),
    "who-wrote": ({"incident": 17, "expression": "app.cache"}, IncidentUnknown),
}


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(home=tmp_path / "home")


def test_each_that_looks_up_is_tried():
    assert {name for name, one in OPERATIONS.items() if one.look_up is not None} == set(WRONG)


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_name_starts_no_process(settings: Settings, monkeypatch: pytest.MonkeyPatch, name: str):
    fields, error = WRONG[name]
    operation = OPERATIONS[name]
    params = operation.params(**fields)
    monkeypatch.setattr(subprocess_runner, "start_module", _none)
    with pytest.raises(error):
        perform_apart(operation, settings, params)


def _none(*_words: object, **_options: object) -> None:
    raise AssertionError("a process was started")


@pytest.mark.parametrize("name", ["replay", "restore"])
def test_where_it_was_begun_before_the_operation_itself_decides(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, name: str
):
    """What it names may have gone meanwhile, and what is left to do may not need it."""
    fields, _ = WRONG[name]
    operation = OPERATIONS[name]
    monkeypatch.setattr(subprocess_runner, "start_module", _none)
    with pytest.raises(AssertionError, match="a process was started"):
        perform_apart(operation, settings, operation.params(**fields), is_first=False)


def test_a_process_is_no_name(settings: Settings, monkeypatch: pytest.MonkeyPatch):
    """Whether one of that number runs is only known when it is held."""
    operation = OPERATIONS["commit"]
    monkeypatch.setattr(subprocess_runner, "start_module", _none)
    with pytest.raises(AssertionError, match="a process was started"):
        perform_apart(operation, settings, operation.params(target=f"pid:{os.getpid()}"))
