"""An object that is met on another path first has not changed; what is in it is compared all the same."""

from __future__ import annotations

from relive.inspection.aliases import with_moved_objects
from relive.inspection.state_changes import mapping_changes


def changes(before: dict[str, str], after: dict[str, str]) -> dict[str, tuple[str | None, str | None]]:
    return {one.name: (one.before, one.after) for one in mapping_changes(*with_moved_objects(before, after))}


BEFORE = {
    "books.lender": "Member",
    "books.lender.name": "'ann'",
    "books.lender.books": "list of 1",
    "members[3]": "the same as books.lender",
    "guest": "the same as books.lender.books",
}
AFTER = {
    "books.lender": "None",
    "members[3]": "Member",
    "members[3].name": "'ann'",
    "members[3].books": "list of 1",
    "guest": "the same as members[3].books",
}


def test_only_the_path_that_leads_there_no_longer_has_changed() -> None:
    assert changes(BEFORE, AFTER) == {"books.lender": ("Member", "None")}
    assert changes(AFTER, BEFORE) == {"books.lender": ("None", "Member")}


def test_what_is_in_the_object_is_compared_with_what_was_in_it() -> None:
    assert changes(BEFORE, AFTER | {"members[3].name": "'eve'"}) == {
        "books.lender": ("Member", "None"),
        "members[3].name": ("'ann'", "'eve'"),
    }


def test_another_object_in_its_place_is_told() -> None:
    after = AFTER | {"books.lender": "Guest", "books.lender.name": "'joe'"}
    assert changes(BEFORE, after) == {
        "books.lender": ("Member", "Guest"),
        "books.lender.name": ("'ann'", "'joe'"),
    }


def test_an_alias_of_another_object_is_a_change() -> None:
    assert changes({"a": "the same as b", "b": "X"}, {"a": "the same as c", "b": "X"}) == {
        "a": ("the same as b", "the same as c")
    }
