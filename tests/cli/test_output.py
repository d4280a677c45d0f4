"""What a command says when its answer cannot be written, when a right is missing, and when Relive itself is wrong."""

from __future__ import annotations

import os
import subprocess
import sysconfig
import tempfile
from pathlib import Path

import pytest

from relive.cli import app
from support.waiting import LIMIT

RELIVE = Path(sysconfig.get_path("scripts")) / "relive"


def say(home: Path, *words: str, command=None, **how) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "RELIVE_HOME": str(home)}
    given = command or [RELIVE, *words]
    return subprocess.run(
        given, env=environment, stderr=subprocess.PIPE, text=True, check=False, timeout=LIMIT, **how
    )


def say_with(home: Path, redirection: str, *words: str) -> subprocess.CompletedProcess[str]:
    """With a redirection of the shell, such as ``>&-``, which closes standard output."""
    command = f"exec {RELIVE} {' '.join(words)} {redirection}"
    return say(home, stdout=subprocess.PIPE, command=["sh", "-c", command])


ERRORS = ["show 99 --json", "nosuch --json", "show --json", "token --json"]


@pytest.mark.parametrize("words", ["--version", "--help", "token list --json"])
def test_a_full_output_is_said_and_is_no_verdict(tmp_path, words):
    with Path("/dev/full").open("w") as full:
        done = say(tmp_path, *words.split(), stdout=full)
    assert (done.returncode, done.stderr.splitlines()) == (
        4,
        [
            "Error: the answer could not be written to standard output (output-lost)",
            "Cause: No space left on device",
            "Remedy: what was asked for is done; ask again with an output that takes the answer",
        ],
    )


@pytest.mark.parametrize("words", ERRORS)
def test_an_error_that_standard_output_does_not_take_is_said_on_the_other_stream(tmp_path, words):
    with Path("/dev/full").open("w") as full:
        done = say(tmp_path, *words.split(), stdout=full)
    assert (done.returncode, "Error" in done.stderr) == (3 if "99" in words else 2, True), done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("words", ["--version", "tag", "nosuch --json"])
def test_with_a_closed_output_nothing_is_done(tmp_path, words):
    done = say_with(tmp_path / "none", ">&-", words)
    assert done.returncode == 4, done.stderr
    assert done.stderr.splitlines()[0] == "Error: standard output is closed (output-lost)"
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("words", ["--help", "token list --json", "show 99 --json"])
def test_a_reader_that_went_away_ends_it_quietly(tmp_path, words):
    read, write = os.pipe()
    os.close(read)
    try:
        done = say(tmp_path, *words.split(), stdout=write)
    finally:
        os.close(write)
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.parametrize("redirection", ["2>&-", "2>/dev/full"])
@pytest.mark.parametrize(("words", "status"), [("tag", 0), ("show 99", 3), ("nosuch", 2)])
def test_remarks_that_nobody_takes_change_no_status(tmp_path, redirection, words, status):
    """``show 99`` ended with 1, as if it had been a verdict."""
    done = say_with(tmp_path, redirection, words)
    assert (done.returncode, done.stdout) == (status, "")


def test_an_agent_that_cannot_be_answered_is_said(tmp_path):
    asked = '{"jsonrpc": "2.0", "id": 1, "method": "ping"}'
    with Path("/dev/full").open("w") as full:
        done = say(tmp_path, "mcp", stdout=full, input=asked + "\n")
    assert (done.returncode, "(output-lost)" in done.stderr) == (4, True), done.stderr


@pytest.mark.parametrize("command", [["incidents"], ["ps"], ["log"], ["show", "1"], ["run", "--", "true"]])
def test_of_another_users_home_nothing_is_told(tmp_path, command):
    """What is not readable is not what is not there: "There are no incidents" was the answer, of five."""
    home = tmp_path / "home"
    home.mkdir(mode=0o755)
    for directory in (tmp_path, *tmp_path.parents):
        if directory == Path(tempfile.gettempdir()):
            break
        directory.chmod(0o755)
    done = say(home, *command, stdout=subprocess.PIPE, user=65534, group=65534, extra_groups=[])
    assert (done.returncode, done.stdout) == (4, ""), done
    assert "(permission-missing)" in done.stderr
    assert "Remedy: run it as root" in done.stderr


def test_to_start_a_service_needs_root_also_in_a_home_of_ones_own(tmp_path):
    """It told of a directory of root's that were to be removed."""
    home = tmp_path / "home"
    home.mkdir()
    os.chown(home, 65534, 65534)
    for directory in (tmp_path, *tmp_path.parents):
        if directory == Path(tempfile.gettempdir()):
            break
        directory.chmod(0o755)
    done = say(
        home, "run", "--", "true", stdout=subprocess.PIPE, user=65534, group=65534, extra_groups=[], cwd="/"
    )
    assert (done.returncode, done.stdout) == (4, "")
    assert done.stderr.startswith("Error: starting a service in a capsule needs root (permission-missing)")


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


@pytest.mark.parametrize("as_json", [False, True])
def test_a_value_is_refused_in_the_words_of_its_check(monkeypatch, capsys, as_json):
    monkeypatch.setattr(
        "sys.argv", ["relive", "run", *["--json"] * as_json, "--capture", "sideways", "--", "true"]
    )
    with pytest.raises(SystemExit) as ended:
        app.main()
    assert ended.value.code == 2
    said = capsys.readouterr()
    assert "Invalid value for '--capture': 'sideways' is not one of" in (said.out if as_json else said.err)
