"""Signals as users write them."""

from __future__ import annotations

import signal

import pytest

from relive.errors import UsageError
from relive.model.signals import parse_signal


@pytest.mark.parametrize(
    ("text", "number"),
    [("TERM", 15), ("SIGQUIT", 3), ("9", 9), ("RTMIN", signal.SIGRTMIN), ("SIGRTMIN+3", signal.SIGRTMIN + 3)],
)
def test_signals_are_read_as_systemd_writes_them(text, number):
    assert parse_signal(text) == number


@pytest.mark.parametrize("text", ["", "SIG", "0", "65", "term", "TERM+", "TERM+x", "RTMIN+40", "-9", "٣"])
def test_what_is_no_signal_is_refused(text):
    with pytest.raises(UsageError, match="is no signal"):
        parse_signal(text)
