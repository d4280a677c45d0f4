"""The plugin costs nothing to who does not use it; what it runs is shown in tests/real/test_trial.py."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from relive import pytest_plugin
from relive.errors import HostIncapable, ReliveError, RestoreUnsupported
from relive.trial.kept import SUFFIX


def test_loading_it_imports_only_what_pytest_has_imported_already():
    program = (
        "import sys, pytest, json, subprocess\nbefore = set(sys.modules)\n"
        "import relive.pytest_plugin\nprint(*sorted(set(sys.modules) - before))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["relive", "relive.pytest_plugin"]


def test_what_it_repeats_since_it_imports_nothing_is_as_it_is_elsewhere():
    def codes(kind: type[ReliveError]) -> set[str]:
        return {kind.code}.union(*(codes(one) for one in kind.__subclasses__()))

    unskipped = {"disk-full", "output-lost", "exports-full"}  # of this moment, and not of this host
    assert codes(HostIncapable) - unskipped | {RestoreUnsupported.code} == pytest_plugin._OF_THE_HOST
    assert pytest_plugin._SUFFIX == SUFFIX


def test_a_failure_that_is_no_verdict_says_what_to_do(tmp_path: Path) -> None:
    error = {"code": "ref-unknown", "message": "it is not here", "cause": "dropped", "remedy": "pull it"}
    assert str(pytest_plugin.Failed(error)) == "it is not here [ref-unknown]\ncause: dropped\nremedy: pull it"


def test_the_fixture_is_skipped_where_kept_states_are_not_asked_for(tmp_path: Path) -> None:
    (tmp_path / "test_one.py").write_text("def test_one(relive):\n    relive.restore('x').replay()\n")
    (tmp_path / f"one{SUFFIX}").write_text("never read")
    words = ["-q", "-rs", "-p", "no:cacheprovider", "-p", "relive.pytest_plugin", "--rootdir", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *words, str(tmp_path)],
        env={"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PATH": "/usr/bin:/bin"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "1 skipped" in done.stdout and "--relive" in done.stdout, done.stdout + done.stderr


def test_an_answer_is_what_came(tmp_path: Path) -> None:
    outcome = {
        "status": 201,
        "end": "answered",
        "body": json.dumps({"id": 7}),
        "headers": [["a", "b"]],
        "stack": None,
    }
    run: dict[str, Any] = {"outcome": outcome, "verdict": {"kind": "not-reproduced"}}
    answer = pytest_plugin.Answer({"runs": [{"run": run, "swapped": None}]})
    assert (answer.status, answer.json(), answer.headers, answer.exception) == (
        201,
        {"id": 7},
        {"a": "b"},
        None,
    )
    outcome.update(stack={"exception": "KeyError: 5"})
    answer = pytest_plugin.Answer({"runs": [{"run": run, "swapped": None}]})
    assert repr(answer) == """<answer: status 201, KeyError: 5, body '{"id": 7}'>"""


def test_what_is_not_as_expected_shows_the_innermost_frames() -> None:
    frames = [[f"/lib/{number}.py", number, "call"] for number in range(30)]
    outcome = {"stack": {"exception": "KeyError: 5", "frames": frames, "text": ["Traceback"]}}
    run = {"reason": "status is 500", "swapped": None, "run": {"outcome": outcome}}
    told = str(pytest_plugin.NotMet({"runs": [run], "request": 7, "commit": "c" * 64})).splitlines()
    assert told[2:] == [
        "",
        "... 24 outer frames",
        *(f"/lib/{n}.py:{n} in call" for n in range(24, 30)),
        "KeyError: 5",
    ]


def test_an_operation_that_ends_without_a_word_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(pytest_plugin.Failed, match="without a result") as failed:
        pytest_plugin.Relive(Path()).restore("c1a2b3").replay()
    shown = failed.traceback.filter(failed)
    assert [entry.name for entry in shown] == ["test_an_operation_that_ends_without_a_word_is_a_failure"]
