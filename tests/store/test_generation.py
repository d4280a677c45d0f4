"""A dictionary is used while it helps, a new one is begun when that is cheaper, and one that does not help is given up."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from relive.store.pages.dictionary import Dictionary
from relive.store.pages.generation import Generation, Trial, begun, may_begin, may_use

MEGA = 1 << 20
FIRST = begun(3, Dictionary(b"of no account"), 1000, after=None)


def took(stored: int, *, saves: float = 0.9, raw: int = MEGA) -> Trial:
    return Trial(raw, stored, int(1000 * (1 - saves)), 1000)


def test_a_commit_of_few_or_of_very_many_pages_begins_none():
    assert [may_begin(None, pages) for pages in (1, 63, 64, 8192, 8193)] == [False, False, True, True, False]


def test_one_that_is_in_use_is_not_exchanged():
    assert may_use(FIRST, 1)
    assert not may_begin(FIRST, 100)
    assert not may_use(None, 1)


def test_it_is_spent_when_what_it_took_beyond_its_best_is_more_than_a_new_one_takes():
    generation = FIRST.after(took(500)).after(took(1400))
    assert may_use(generation, 1)
    generation = generation.after(took(700))
    assert generation.is_spent
    assert not may_use(generation, 1)
    assert may_begin(generation, 100)


@given(sizes=st.lists(st.integers(1, 5000), min_size=1, max_size=40))
def test_what_is_taken_beyond_the_best_is_never_more_than_one_that_is_new_and_one_commit(sizes):
    generation = FIRST
    for size in sizes:
        if generation.is_spent:
            break
        generation = generation.after(took(size))
        assert generation.excess <= generation.cost + size


def test_a_few_bytes_tell_nothing():
    assert FIRST.after(took(60_000, saves=0.0, raw=60_000)) == FIRST


def waits(generation: Generation) -> int:
    """Commits until another is tried."""
    count = 0
    while not may_begin(generation, 100):
        assert not may_use(generation, 100)
        generation, count = generation.unused(), count + 1
    return count


def test_one_that_does_not_help_is_given_up_and_the_next_is_tried_later_and_later():
    generation, found = FIRST, []
    for _ in range(7):
        generation = generation.after(took(900, saves=0.1))
        found.append(waits(generation))
        for _ in range(found[-1]):
            generation = generation.unused()
        generation = begun(5, Dictionary(b""), 1000, after=generation)
    assert found == [1, 2, 4, 8, 16, 32, 32]
    helped = generation.after(took(100))
    assert helped.patience == 1
