"""What a command says when its answer cannot be written, when a right is missing, and when Relive itself is wrong."""

from __future__ import annotations

import os
import subprocess
import sysconfig
from pathlib import Path

import pytest

from relive.cli import app

RELIVE = Path(sysconfig.get_path("scripts")) / "relive"


def say(home: Path, *words: str, **how) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "RELIVE_HOME": str(home)}
    return subprocess.run(
        [RELIVE, *words], env=environment, stderr=subprocess.PIPE, text=True, check=False, **how
    )


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_a_full_output_is_said_and_is_no_verdict(tmp_path, options):
    with Path("/dev/full").open("w") as full:
        done = say(tmp_path, "token", "list", *options, stdout=full)
        told = say(tmp_path, "--version", stdout=full)
    if options:
        assert (done.returncode, "(output-lost)" in done.stderr) == (4, True), done.stderr
        assert "No space left on device" in done.stderr
    assert "Traceback" not in done.stderr + told.stderr


def test_a_closed_output_is_said(tmp_path):
    done = subprocess.run(
        ["sh", "-c", f"{RELIVE} token list --json >&-"],
        env={**os.environ, "RELIVE_HOME": str(tmp_path)},
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    assert (done.returncode, "(output-lost)" in done.stderr) == (4, True), done.stderr


def test_a_reader_that_went_away_ends_it_quietly(tmp_path):
    read, write = os.pipe()
    os.close(read)
    try:
        done = say(tmp_path, "token", "list", "--json", stdout=write)
    finally:
        os.close(write)
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.parametrize("command", [["incidents"], ["ps"], ["log"], ["show", "1"], ["run", "--", "true"]])
def test_of_another_users_home_nothing_is_told(tmp_path, command):
    """What is not readable is not what is not there: "There are no incidents" was the answer, of five."""
    home = tmp_path / "home"
    home.mkdir(mode=0o755)
    for directory in (tmp_path, tmp_path.parent, tmp_path.parent.parent):
        directory.chmod(0o755)
    done = say(home, *command, stdout=subprocess.PIPE, user=65534, group=65534, extra_groups=[])
    assert (done.returncode, done.stdout) == (4, ""), done
    assert "(permission-missing)" in done.stderr
    assert "Remedy: run it as root" in done.stderr


def test_a_defect_is_one_error_with_a_status_that_no_verdict_has(monkeypatch, capsys, tmp_path):
    monkeypatch.setenv("RELIVE_HOME", str(tmp_path))
    monkeypatch.setattr("sys.argv", ["relive", "tag"])
    monkeypatch.setattr(app, "application_for", lambda _word: _broken)
    with pytest.raises(SystemExit) as ended:
        app.main()
    assert ended.value.code == 70
    said = capsys.readouterr().err
    assert said.startswith("Error: ZeroDivisionError: by zero (error)\nCause: a defect of Relive, at ")
    assert "test_output.py:" in said


def _broken(**_options: object) -> int:
    raise ZeroDivisionError("by\n zero")
