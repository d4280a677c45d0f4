"""Entries of the journal as lines of output."""

from __future__ import annotations

import pytest

from relive.watching.processes.journald import line_of

AT = "1763780604420007"


@pytest.mark.parametrize(
    ("entry", "line"),
    [
        ({"MESSAGE": "one", "__REALTIME_TIMESTAMP": AT}, b"2025-11-22T03:03:24.420007Z one\n"),
        ({"MESSAGE": [255, 104], "__REALTIME_TIMESTAMP": AT}, b"2025-11-22T03:03:24.420007Z \xffh\n"),
        ({"MESSAGE": None, "__REALTIME_TIMESTAMP": AT}, None),
        ({"MESSAGE": "one"}, None),
    ],
)
def test_a_message_comes_behind_its_time(entry, line):
    assert line_of(entry) == line


def test_each_line_of_a_message_has_the_time():
    text = line_of({"MESSAGE": "one\ntwo", "__REALTIME_TIMESTAMP": AT})
    assert text is not None
    assert [line.split(b" ", 1)[1] for line in text.splitlines()] == [b"one", b"two"]
