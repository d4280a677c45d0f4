"""A command that is asked to end takes back what it makes, and ends as it was asked to."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

_WORKS = """
import signal, sys
from relive.cli.giving_up import taken_back_when_asked_to_end
signal.signal(signal.SIGHUP, signal.SIG_IGN if "--nohup" in sys.argv else signal.SIG_DFL)
with taken_back_when_asked_to_end():
    try:
        print("begun", flush=True)
        for line in sys.stdin:
            print("at work", flush=True)
    except KeyboardInterrupt:
        print("asked", flush=True)
        sys.stdin.readline()
        print("taken back", flush=True)
        raise
"""


def begun(*words: str) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", _WORKS, *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None and process.stdout.readline() == "begun\n"
    return process


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_what_was_begun_is_taken_back_whatever_else_is_asked(number: signal.Signals) -> None:
    with begun() as process:
        assert process.stdout is not None
        process.send_signal(number)
        assert process.stdout.readline() == "asked\n"
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGHUP)
        out, _ = process.communicate("go on\n", timeout=60)
    assert (out, process.returncode) == ("taken back\n", -number)


def test_what_is_ignored_stays_ignored() -> None:
    with begun("--nohup") as process:
        process.send_signal(signal.SIGHUP)
        out, _ = process.communicate("go on\n", timeout=60)
    assert (out, process.returncode) == ("at work\n", 0)
