"""A command that cannot even be imported ends with the status of a defect and one error, never with that of a verdict."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

# Neither of them can be imported then.
_START = "import sys; sys.modules[{!r}] = None; from relive.cli import main; main()"


def say(broken: str, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", _START.format(broken), *words], capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("broken", ["relive.cli.app", "relive.cli.forked"])
def test_what_cannot_be_imported_is_one_error(broken):
    done = say(broken, "replay", "1")
    assert (done.returncode, done.stdout) == (70, "")
    first, second, third = done.stderr.splitlines()
    assert first.startswith("Error: ModuleNotFoundError") and first.endswith("(error)")
    assert second.startswith("Cause: a defect of Relive, or an installation that is not whole, at start.py:")
    assert third.startswith("Remedy: ")


def test_a_program_reads_it_as_any_error():
    done = say("relive.cli.app", "replay", "--json", "1")
    assert (done.returncode, done.stderr) == (70, "")
    assert set(json.loads(done.stdout)["error"]) == {"code", "message", "cause", "remedy"}
