"""A cursor names a place in one list; whatever else is given in its place is refused in words."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relive.errors import UsageError
from relive.store.paging import check_limit, page_of, read_cursor

places = st.tuples(
    st.integers(-(1 << 63), (1 << 63) - 1), st.text(st.characters(max_codepoint=127), max_size=64)
)


@given(places, places)
def test_a_cursor_gives_back_the_place_of_the_last_row(place, other):
    page = page_of("things", [place, other], 1, lambda row: row)
    assert page.items == [place]
    assert read_cursor("things", page.next, (int, str)) == place


def test_the_last_page_has_no_cursor_and_no_cursor_means_the_first_page():
    assert page_of("things", [1, 2], 2, lambda row: (row,)).next is None
    assert page_of("things", [], 2, lambda row: (row,)).items == []
    assert read_cursor("things", None, (int,)) is None


def cursor(*place: int | str, order: str = "things") -> str:
    after = page_of(order, [place, place], 1, lambda row: row).next
    assert after is not None
    return after


@pytest.mark.parametrize(
    "wrong",
    [
        "",
        "x",
        "é" * 8,
        "%%%%",
        "A" * 5000,
        "bnVsbA",
        "W1tbW1tb" * 60,
        cursor(1, "a", order="others"),
        cursor(1),
        cursor("a", 1),
        cursor(1, "a", 2),
        cursor(1 << 63, "a"),
        cursor(True, "a"),
        cursor(1, "\udc80"),
    ],
)
def test_what_is_no_cursor_of_the_list_is_refused(wrong):
    with pytest.raises(UsageError) as caught:
        read_cursor("things", wrong, (int, str))
    assert "first page" in (caught.value.remedy or "")
    assert caught.value.cause


@given(st.text())
def test_no_text_does_anything_but_be_refused(text):
    try:
        read_cursor("things", text, (int, str))
    except UsageError:
        return
    assert text == cursor(*(read_cursor("things", text, (int, str)) or ()))


@pytest.mark.parametrize("limit", [0, -1])
def test_a_page_has_at_least_one_row(limit):
    with pytest.raises(UsageError):
        check_limit(limit)
