"""Delta debugging, against all predicates that small sets have."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from relive.intervention.minimal import fewest


@given(
    st.integers(1, 40).flatmap(lambda n: st.tuples(st.just(n), st.sets(st.integers(0, n - 1), min_size=1)))
)
def test_the_changes_that_are_needed_are_found_exactly(drawn):
    """Where each of some changes is needed and no other matters, these are found, and nothing is asked twice."""
    count, needed = drawn
    asked: list[tuple[int, ...]] = []

    def is_enough(parts: Sequence[int]) -> bool:
        assert parts
        asked.append(tuple(parts))
        return needed <= set(parts)

    assert fewest(range(count), is_enough) == sorted(needed)
    assert len(asked) == len(set(asked)) <= count * count + 3 * count


@given(
    st.integers(1, 5).flatmap(
        lambda n: st.tuples(st.just(n), st.sets(st.frozensets(st.integers(0, n - 1), min_size=1)))
    )
)
def test_what_is_found_is_enough_and_not_without_any_one_of_it(drawn):
    """Also where what is enough follows no rule: more changes may do less, as runs that cannot be judged do."""
    count, sets = drawn
    everything = frozenset(range(count))
    enough = sets | {everything}
    found = fewest(range(count), lambda parts: frozenset(parts) in enough)
    assert frozenset(found) in enough and found == sorted(found)
    assert not any(frozenset(found) - {one} in enough for one in found if len(found) > 1)


@given(st.integers(2, 400).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n - 1))))
def test_one_among_many_is_found_by_halving(drawn):
    count, needed = drawn
    asked = []

    def is_enough(parts: Sequence[int]) -> bool:
        asked.append(1)
        return needed in parts

    assert fewest(range(count), is_enough) == [needed]
    assert len(asked) <= 2 * count.bit_length()
