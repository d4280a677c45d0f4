"""Trees of JSON: another value at a path, and where two differ."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relive.errors import ChangeUnfit
from relive.intervention.trees import differing_leaves, packed_like, with_value_at

TREES = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
)


@given(TREES, TREES)
def test_a_tree_with_all_the_leaves_of_another_is_that_one(one, other):
    leaves = differing_leaves(one, other)
    if leaves is None:
        return
    for path, value in leaves:
        one = with_value_at(one, path, value, written="")
    assert one == other


def test_a_value_that_was_written_plainly_becomes_of_the_recorded_type():
    assert packed_like({"$": ["decimal", "1.5"]}, "2") == {"$": ["decimal", "2"]}
    assert packed_like({"$": ["decimal", "1.5"]}, 2) == {"$": ["decimal", "2"]}
    assert packed_like({"$": ["utf8", "a"]}, "b") == {"$": ["utf8", "b"]}
    assert packed_like([{"$": ["utf8", "a"]}], ["b", "c"]) == [{"$": ["utf8", "b"]}, {"$": ["utf8", "c"]}]
    assert packed_like({"$": ["datetime", "2026-01-01T00:00:00", 0]}, "2027-01-01") == {
        "$": ["datetime", "2027-01-01", 0]
    }
    assert isinstance(packed_like(0.5, 1), float) and packed_like(1, None) is None


def test_columns_have_names_and_what_is_not_there_is_told():
    rows = [[1, None], [2, 3]]
    assert with_value_at(rows, (0, "price"), 9, written="", columns=["id", "price"]) == [[1, 9], [2, 3]]
    for path in ((2,), (0, "size"), (0, 5), ("a",), (0, 0, 0)):
        with pytest.raises(ChangeUnfit) as refused:
            with_value_at(rows, path, 1, written="query:1", columns=["id", "price"])
        assert "there is no $" in (refused.value.cause or "")


def test_a_field_can_be_added():
    assert with_value_at({"a": {}}, ("a", "b"), 1, written="") == {"a": {"b": 1}}
