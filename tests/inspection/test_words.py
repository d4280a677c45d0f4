"""Changed values in words."""

from __future__ import annotations

from relive.inspection.state_changes import FieldChange
from relive.inspection.words import value_change_lines


def change(name: str, before: str | None, after: str | None) -> FieldChange:
    return FieldChange(name=name, before=before, after=after)


def test_of_what_came_with_all_that_is_in_it_a_few_values_are_listed():
    inside = [change(f"pool[0].field{number}", None, str(number)) for number in range(20)]
    changes = [
        change("pool", "list of 0", "list of 1"),
        change("pool[0]", None, "Connection"),
        *inside,
        change("pool2", "1", None),
        change("cache['CHF']", None, "None"),
    ]
    lines = value_change_lines(changes, 100, "--json")
    assert lines[:2] == ["pool: list of 0 -> list of 1", "pool[0]: added Connection (20 values in it)"]
    assert lines[2:7] == [f"pool[0].field{number}: added {number}" for number in range(5)]
    assert lines[7:] == ["pool2: gone, was 1", "cache['CHF']: added None", "and 15 more (--json)"]


def test_no_more_lines_than_wanted_and_how_many_are_left():
    changes = [change(f"counts[{number}]", "1", "2") for number in range(7)]
    assert value_change_lines(changes, 3, "--json")[2:] == ["counts[2]: 1 -> 2", "and 4 more (--json)"]
    assert len(value_change_lines(changes, 7, "--json")) == 7


def test_a_list_that_grows_does_not_hide_what_changed_beside_it():
    """GIVEN a log in memory of which each entry holds values THEN the lock is among the first lines."""
    grown = [
        change(f"app.audit[{number}]{part}", None, "x")
        for number in range(50)
        for part in ("", "[0]", "['k{]']")
    ]
    lock = change("app.lock", "unlocked _thread.lock", "locked _thread.lock")
    lines = value_change_lines([change("app.audit", "list of 0", "list of 50"), *grown, lock], 20, "--json")
    assert lines[-2:] == ["app.lock: unlocked _thread.lock -> locked _thread.lock", "and 141 more (--json)"]
    assert len(lines) == 1 + 9 + 2


def test_attributes_that_came_are_all_listed():
    changes = [change(f"app.name{number}", None, "1") for number in range(9)]
    assert len(value_change_lines(changes, 20, "--json")) == 9
