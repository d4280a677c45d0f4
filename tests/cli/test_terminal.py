"""Sizes, spans and moments as people read them; answers and errors on their streams."""

from __future__ import annotations

import json
import re
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relive.cli.terminal import Terminal
from relive.errors import DiskFull
from relive.model.quantities import age, duration, size, when

from .conftest import NOW_NS

SECOND = 1_000_000_000


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (12.3 * 1024**2, "12.3 MiB"),
        (5 << 30, "5.0 GiB"),
        (3 << 40, "3.0 TiB"),
        (1 << 50, "1024.0 TiB"),
    ],
)
def test_a_size_has_a_binary_unit(count, text):
    assert size(count) == text


@pytest.mark.parametrize(
    ("microseconds", "text"),
    [
        (None, "-"),
        (0, "0 us"),
        (999, "999 us"),
        (1000, "1.0 ms"),
        (12_345, "12.3 ms"),
        (1_000_000, "1.0 s"),
        (4_200_000, "4.2 s"),
    ],
)
def test_a_span_has_a_unit(microseconds, text):
    assert duration(microseconds) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (119, "119 s"),
        (120, "2 min"),
        (7199, "120 min"),
        (7200, "2 h"),
        (172_799, "48 h"),
        (172_800, "2 d"),
        (-5, "0 s"),
    ],
)
def test_an_age_is_counted_to_now(seconds, text):
    assert age(NOW_NS - seconds * SECOND) == text


@given(st.integers(0, 2**62))
def test_a_moment_is_shown_to_the_millisecond(wall_ns):
    assert when(wall_ns).endswith(f".{wall_ns // 1_000_000 % 1000:03}")


def test_an_answer_goes_to_stdout_and_a_status_to_stderr(capsys):
    terminal = Terminal()
    terminal.answer({"a": 1}, "answer")
    terminal.status("status.")
    terminal.hint("try it")
    assert tuple(capsys.readouterr()) == ("answer\n", "status.\nHint: try it\n")


def test_with_json_the_answer_is_json_and_hints_are_not_given(capsys):
    terminal = Terminal(as_json=True)
    terminal.answer({"ü": (1, None)}, "answer")
    terminal.hint("try it")
    out, err = capsys.readouterr()
    assert json.loads(out) == {"ü": [1, None]}
    assert err == ""


def test_a_text_is_only_made_when_it_is_shown(capsys):
    Terminal(as_json=True).answer({}, lambda: pytest.fail("made for nothing"))
    Terminal().answer({}, lambda: "made")
    assert capsys.readouterr().out == "{}\nmade\n"


def test_an_error_shows_its_parts_a_line_each(capsys):
    Terminal().failed(DiskFull("no space", cause="it is full", remedy="free some"))
    Terminal().failed(DiskFull("no space"))
    assert tuple(capsys.readouterr()) == (
        "",
        "Error: no space (disk-full)\nCause: it is full\nRemedy: free some\nError: no space (disk-full)\n",
    )


def test_a_long_line_is_not_folded(capsys):
    Terminal().answer(None, "word " * 200)
    Terminal().status("word " * 200)
    out, err = capsys.readouterr()
    assert (len(out.splitlines()), len(err.splitlines())) == (1, 1)


def test_progress_is_silent_where_nobody_looks(capsys):
    with Terminal().progress("replaying", 5) as done:
        done(3)
    assert tuple(capsys.readouterr()) == ("", "")


def test_a_transfer_shows_how_much_how_fast_and_how_long_where_somebody_looks(monkeypatch, capsys):
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich takes that for a terminal
    monkeypatch.setenv("COLUMNS", "120")
    with Terminal().transfer("Pulling abc", 4 << 20) as done:
        done(1 << 20)
        done(3 << 20)
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "Pulling abc" in shown.err
    assert "4.0/4.0 MiB" in shown.err
    assert "0:00:00" in shown.err


def test_a_transfer_is_silent_where_nobody_looks(capsys):
    with Terminal().transfer("Pulling abc", 4 << 20) as done:
        done(1 << 20)
    assert tuple(capsys.readouterr()) == ("", "")


STEERING = [
    "\x1b]0;owned\x07",
    "\x1b]8;;http://x\x1b\\",
    "\x1b[2J",
    "\x9b31m",
    "\x85",
    "\u202e",
    "\u2066",
    "\u2028",
    "\x7f",
]


@pytest.mark.parametrize("evil", STEERING)
@pytest.mark.parametrize("as_json", [False, True])
def test_no_text_steers_the_terminal(evil, as_json, capsys):
    """Answers, tables, statuses, hints and errors alike."""
    terminal = Terminal(as_json=as_json)
    text = f"begin {evil} end"
    terminal.answer({"a": text}, text)
    terminal.table([{"a": text}], ["a", "b"], [[text, text]], "none")
    terminal.status(text)
    terminal.hint(text)
    terminal.failed(DiskFull(text, cause=text, remedy=text))
    out, err = capsys.readouterr()
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]", out + err)
    assert "begin " in out
    if as_json:
        decoder = json.JSONDecoder()
        first, _ = decoder.raw_decode(out)
        assert first == {"a": text}


def test_output_of_a_service_keeps_its_bytes_in_a_pipe_and_is_printable_on_a_terminal(tmp_path, monkeypatch):
    line = b"\x1b[31mred\xff\n"
    for is_terminal in (False, True):
        path = tmp_path / str(is_terminal)
        with path.open("w", encoding="utf-8") as stream:
            monkeypatch.setattr(stream, "isatty", lambda told=is_terminal: told, raising=False)
            monkeypatch.setattr(sys, "stdout", stream)
            Terminal().output([line])
        assert path.read_bytes() == (b"\\x1b[31mred\\xff\n" if is_terminal else line)
