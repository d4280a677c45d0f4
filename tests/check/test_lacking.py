"""What a replay will lack is said before the service runs."""

from __future__ import annotations

import sys

from relive.check.lacking import replay_lacks


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
