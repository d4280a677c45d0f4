"""Tables fit the terminal: the last column goes on below itself, the others are cut where even that is not enough."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from relive.cli.table import table_lines

COLUMNS = ["id", "size", "about"]
ROWS = [["a1", "5 B", "one two three four five six"], ["b22222", "1024 B", "seven"]]


def test_columns_stand_two_blanks_apart_and_numbers_to_the_right():
    assert list(table_lines(COLUMNS, ROWS, 100)) == [
        "id        size  about",
        "a1         5 B  one two three four five six",
        "b22222  1024 B  seven",
    ]


def test_the_last_column_goes_on_below_itself():
    assert list(table_lines(COLUMNS, ROWS, 34)) == [
        "id        size  about",
        "a1         5 B  one two three four",
        "                five six",
        "b22222  1024 B  seven",
    ]


def test_where_that_is_not_enough_the_widest_are_cut():
    rows = [["a" * 30, "b" * 10, "what it is about"]]
    assert list(table_lines(COLUMNS, rows, 40))[1] == f"{'a' * 9}…  {'b' * 10}  what it is about"


def test_lines_within_a_cell_stay_lines_in_the_last_column_only():
    assert list(table_lines(["a", "b"], [["x\ny", "one\ntwo"]], 100))[1:] == ["x y  one", "     two"]


def test_wide_characters_count_twice_and_combining_ones_nothing():
    rows = [["日本", "1"], ["e\N{COMBINING ACUTE ACCENT}", "2"]]
    assert list(table_lines(["a", "b"], rows, 100))[1:] == ["日本  1", "e\N{COMBINING ACUTE ACCENT}     2"]


def test_colours_are_around_whole_lines_and_only_where_they_are_wanted():
    lines = list(table_lines(COLUMNS, ROWS, 100, bad={1}, coloured=True))
    assert [re.findall("\x1b\\[\\d+m", line) for line in lines] == [
        ["\x1b[1m", "\x1b[0m"],
        [],
        ["\x1b[31m", "\x1b[0m"],
    ]
    assert "\x1b" not in "".join(table_lines(COLUMNS, ROWS, 100, bad={1}))


@given(
    st.lists(st.lists(st.text("ab 日\n", max_size=60), min_size=3, max_size=3), max_size=4),
    st.integers(30, 120),
)
def test_no_line_is_wider_than_the_terminal(rows, width):
    for line in table_lines(COLUMNS, rows, width):
        assert sum(2 if char == "日" else 1 for char in line) <= width
