"""Few steps lead to the first, most members lean on one that is near, and what a node continues stays the same."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from relive.store.pages.nodes import NODE_EVERY, is_node, leans_on, path


def test_some_paths():
    assert [path(number) for number in (1, 4, 7, 16, 21, 52, 63)] == [
        [0],
        [0],
        [4, 0],
        [0],
        [20, 16, 0],
        [48, 0],
        [60, 48, 0],
    ]


@given(number=st.integers(1, NODE_EVERY**3 - 1))
def test_each_leans_on_nodes_and_three_steps_lead_to_the_first(number):
    found = path(number)
    assert all(map(is_node, found)) and found[-1] == 0 and len(found) <= 3
    assert found == sorted(set(found), reverse=True)
    if not is_node(number):
        assert number - found[0] < NODE_EVERY


@given(number=st.integers(1, 1000))
def test_who_keeps_only_the_path_of_one_has_what_the_next_needs(number):
    kept = [*([number] if is_node(number) else []), *path(number)]
    assert leans_on(number + 1) in kept
