"""What only grew from commit to commit."""

from __future__ import annotations

from relive.inspection.growth import grown_collections, grown_types, kept_entries
from relive.inspection.python.values import PythonCensus


def census(types: dict[str, int], collections: dict[str, int] | None = None) -> PythonCensus:
    return PythonCensus(
        process=1,
        types={name: (count, 1000 * count) for name, count in types.items()},
        collections={path: ("dict", count, 8 * count) for path, count in (collections or {}).items()},
    )


def test_types_that_grew_each_time_are_told_by_bytes_gained():
    found = grown_types(
        [
            census({"A": 1, "Much": 10, "Same": 5, "UpAndDown": 1}),
            census({"A": 3, "Much": 20, "Same": 5, "UpAndDown": 9, "New": 2}),
            census({"A": 4, "Much": 90, "Same": 5, "UpAndDown": 8, "New": 4}),
        ]
    )
    assert [(one.name, one.counts) for one in found] == [
        ("Much", [10, 20, 90]),
        ("New", [0, 2, 4]),
        ("A", [1, 3, 4]),
    ]
    assert found[0].sizes == [10_000, 20_000, 90_000]


def test_less_than_a_kilobyte_is_not_told():
    few = [PythonCensus(process=1, types={"A": (count, 16 * count)}, collections={}) for count in (1, 2, 3)]
    assert grown_types(few) == []


def test_collections_that_grew_each_time_are_told_by_entries_gained():
    found = grown_collections(
        [
            census({}, {"cache": 1, "log": 5}),
            census({}, {"cache": 2, "log": 50, "late": 1}),
            census({}, {"cache": 3, "log": 500, "late": 2, "last": 7}),
        ]
    )
    assert [(one.path, one.counts) for one in found] == [
        ("log", [5, 50, 500]),
        ("cache", [1, 2, 3]),
        ("late", [0, 1, 2]),
    ]


def test_entries_that_the_first_lacks_and_the_others_have_are_kept():
    assert kept_entries([["a"], ["a", "c", "b", "gone"], ["b", "a", "c", "new"]], 5) == ["c", "b"]
    assert kept_entries([["a"], ["a", "c", "b"], ["b", "a", "c"]], 1) == ["c"]
