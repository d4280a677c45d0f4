"""Recorded values in words: as Python writes them, bounded, and nothing in them moves a cursor."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relive.incidents.report.shown import one_line, printable, shorten, shown, unpacked_text

from .builders import packed

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("$ab"), inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "None"),
        ("it's", '"it\'s"'),
        ([1, 2.5], "[1, 2.5]"),
        (packed("tuple", [1]), "(1,)"),
        (packed("dict", [["a", packed("decimal", "1.50")]]), "{'a': decimal('1.50')}"),
        (packed("set", []), "set()"),
        (packed("bytes", base64.b64encode(b"ab").decode()), "b'ab'"),
        (packed("utf8", "it's café"), 'b"it\'s café"'),
        (packed("datetime", "2026-01-02T03:04:05"), "2026-01-02T03:04:05"),
        ([1, packed("cut", 9)], "[1, … 9 more]"),
        (packed("opaque", "shop.Order"), "<shop.Order>"),
        ({"$": ["long", "ab", 100_000, 7]}, "'ab'… (of 100000 in all)"),
        ({"$": ["long", packed("utf8", "ab"), 100_000, 7]}, "b'ab'… (of 100000 in all)"),
        ({"plain": 1}, "{plain: 1}"),
    ],
)
def test_a_packed_value_looks_as_python_writes_it(value, text):
    assert shown(value) == text.replace("{plain", "{'plain'")


def test_long_values_are_cut_and_marked():
    assert shown("x" * 100, 10) == "'xxxxxxxx…"
    assert shown(list(range(100)), 500).endswith("22, 23, …]")
    assert shown(packed("bytes", base64.b64encode(bytes(100)).decode()), 500).endswith("… (100 bytes)")
    deep: list[object] = []
    for _ in range(1000):
        deep = [deep]
    assert shown(deep).count("[") == 8


@given(JSON, st.integers(1, 40))
def test_any_json_is_shown_in_one_line_of_the_length_that_was_asked_for(value, limit):
    text = shown(value, limit)
    assert len(text) <= limit
    assert printable(text) == text
    assert "\n" not in text


@given(st.text())
def test_nothing_steers_the_terminal(text):
    safe = printable(text)
    assert not any(ord(char) < 32 and char not in "\t\n" for char in safe)
    assert "\x1b" not in safe
    assert "\u202e" not in safe
    assert "\n" not in one_line(text)


def test_a_text_is_unpacked_from_text_or_bytes_and_from_nothing_else():
    assert unpacked_text("a") == "a"
    assert unpacked_text(packed("bytes", base64.b64encode("ü".encode()).decode())) == "ü"
    assert unpacked_text(packed("bytes", "no base64!")) is None
    assert unpacked_text(packed("decimal", "1")) is None
    assert unpacked_text(17) is None


def test_what_fits_is_not_cut():
    assert shorten("abc", 3) == "abc"
    assert shorten("abcd", 3) == "ab…"
