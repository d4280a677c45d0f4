"""What a replay will lack is said before the service runs."""

from __future__ import annotations

import sys

import pytest

from relive.check.lacking import drops_recorder, replay_lacks


def test_nothing_where_the_border_is_recorded():
    assert replay_lacks(["node", "x.js"], inside=True, border=True, tls=True) is None


def test_of_a_python_what_the_recorder_does_not_know():
    told = replay_lacks([sys.executable, "x.py"], inside=True, border=False, tls=False)
    assert told is not None
    assert "does not know" in told
    assert "--record-egress" in told


def test_of_any_other_program_and_without_the_recorder_all():
    for words, inside in (
        [("ls",), True],
        [(sys.executable,), False],
        [("no-such-program",), True],
        [("sh",), False],
    ):
        told = replay_lacks(words, inside=inside, border=False, tls=False)
        assert told is not None
        assert "such as databases" in told
    told = replay_lacks(["sh", "-c", "python3 x.py"], inside=True, border=False, tls=False)
    assert told is not None
    assert "inside its Python processes" in told


def test_only_tls_where_packets_are_copied_at_the_border():
    for words, whose in (
        [(sys.executable, "x.py"), " through libraries that the recorder inside does not know"],
        [("sh", "-c", "python3 x.py"), ", but for what the recorder knows inside"],
        [("ls",), ": `--record-egress` opens it"],
    ):
        told = replay_lacks(words, inside=True, border=True, tls=False)
        assert told is not None
        assert f"of other servers over TLS{whose}" in told


@pytest.mark.parametrize(
    "words",
    [
        ["env", "PYTHONPATH=/srv", "python3", "x.py"],
        ["/usr/bin/env", "-S", "A=1", "PYTHONPATH=", "python3"],
        ["env", "-i", "python3"],
        ["env", "-u", "PYTHONPATH", "python3"],
        ["sh", "-c", "cd /srv; PYTHONPATH=lib exec python3 x.py"],
        ["env", "A=1", "bash", "-c", "PYTHONPATH=/srv python3 x.py"],
    ],
)
def test_a_command_that_takes_the_recorder_out_is_said(words: list[str]):
    assert drops_recorder(words)
    for border in (True, False):
        told = replay_lacks(words, inside=True, border=border, tls=border)
        assert told is not None and "PYTHONPATH=... relive run" in told
    assert "PYTHONPATH" not in (replay_lacks(words, inside=False, border=False, tls=False) or "")


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["python3", "x.py", "PYTHONPATH=1"],
        ["env", "A=PYTHONPATH=1", "python3", "PYTHONPATH=/srv"],
        ["sh", "-c", "PYTHONPATH=/srv:$PYTHONPATH python3 x.py"],
        ["sh", "-c", "echo MY_PYTHONPATH=1"],
    ],
)
def test_a_command_that_leaves_it_in_is_not(words: list[str]):
    assert not drops_recorder(words)
