"""Runs of pages against plain sets and dictionaries."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from relive.checkpoint.page_runs import Span, difference, newest, placed, union

spans = st.lists(
    st.tuples(st.integers(0, 60), st.integers(1, 12)).map(lambda found: (found[0], found[0] + found[1])),
    max_size=12,
)


def pages(found: list[Span]) -> set[int]:
    return {page for first, end in found for page in range(first, end)}


@given(spans)
def test_a_union_holds_the_same_pages_in_order_and_apart(some: list[Span]) -> None:
    found = union(some)
    assert pages(found) == pages(some)
    assert all(before[1] < after[0] for before, after in itertools.pairwise(found))


@given(spans, spans)
def test_a_difference_holds_what_only_the_first_has(some: list[Span], others: list[Span]) -> None:
    found = difference(union(some), union(others))
    assert pages(found) == pages(some) - pages(others)
    assert found == sorted(found)


@given(spans)
def test_of_a_page_that_was_written_twice_the_later_copy_is_found(written: list[Span]) -> None:
    model, slot = {}, 0
    for first, end in written:
        for page in range(first, end):
            model[page] = slot
            slot += 1
    found = newest(written)
    assert found == sorted(found)
    assert {page: run.slot + page - run.first for run in found for page in range(run.first, run.end)} == model
    assert sum(run.end - run.first for run in found) == len(model)


@given(spans, spans)
def test_pages_are_placed_where_their_copies_lie(wanted: list[Span], written: list[Span]) -> None:
    copies = newest(written)
    model = {page: run.slot + page - run.first for run in copies for page in range(run.first, run.end)}
    found = placed(union(wanted), copies)
    assert found == sorted(found)
    answer = {page: run.slot + page - run.first for run in found for page in range(run.first, run.end)}
    assert answer == {page: slot for page, slot in model.items() if page in pages(wanted)}
