"""Numbers of pages as arrays, against sets of numbers."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from relive.checkpoint.micro_pages import page_numbers, pages_by_spans, pages_within
from relive.checkpoint.page_runs import Span, union

SPANS = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 9)).map(lambda one: (one[0], sum(one))))


def numbers(spans: list[Span]) -> list[int]:
    return [page for first, end in spans for page in range(first, end)]


@given(SPANS)
def test_numbers_are_in_the_order_of_their_spans(spans: list[Span]) -> None:
    assert page_numbers(spans).tolist() == numbers(spans)


@given(SPANS, SPANS, SPANS)
def test_pages_are_found_by_address_whatever_the_order_of_the_spans(
    present: list[Span], within: list[Span], without: list[Span]
) -> None:
    """The tracker tells them region by region, and what was written in a region behind what was not."""
    within, without = union(within), union(without)
    wanted = sorted(set(numbers(within)) - set(numbers(without)))
    assert pages_by_spans(present, within, without).tolist() == sorted(
        page for page in numbers(present) if page in wanted
    )


@given(SPANS, SPANS)
def test_of_pages_in_ascending_order_it_is_told_whether_they_are_within(
    pages: list[Span], spans: list[Span]
) -> None:
    held, wanted = page_numbers(union(pages)), set(numbers(spans))
    assert held[pages_within(held, union(spans))].tolist() == [
        page for page in held.tolist() if page in wanted
    ]
