"""How commits are named and found: ids and their beginnings, targets, times, tags; the log, the commit before an event."""

from __future__ import annotations

import itertools
import time

import pytest

from relive.errors import (
    RefAmbiguous,
    RefUnknown,
    UsageError,
)
from relive.model.commit import Trigger

from .builders import SECOND, commit, is_whole, make_manifest


def test_a_commit_is_found_by_its_id_and_by_a_unique_beginning(store):
    one = commit(store)
    for digits in (64, 12, 4):
        assert store.resolve(one.id[:digits]) == one.id


def test_three_digits_are_too_few(store):
    one = commit(store)
    with pytest.raises(RefUnknown):
        store.resolve(one.id[:3])


def test_a_beginning_of_several_ids_is_ambiguous_and_says_so(store):
    ids = sorted(store.add(make_manifest(capture=f"{number}")).id for number in range(900))
    one, other = next((a, b) for a, b in itertools.pairwise(ids) if a[:4] == b[:4])
    with pytest.raises(RefAmbiguous) as caught:
        store.resolve(one[:4])
    assert one[:12] in (caught.value.cause or "")
    assert other[:12] in (caught.value.cause or "")


def test_a_target_name_is_its_newest_commit(store):
    commit(store, wall_ns=2 * SECOND, capture="2")
    newest = commit(store, wall_ns=3 * SECOND, capture="3")
    commit(store, wall_ns=4 * SECOND, name="other")
    commit(store, wall_ns=1 * SECOND, capture="1")
    assert store.resolve("pay") == newest.id
    assert store.resolve("pay@{now}") == newest.id
    assert store.resolve("pay@{}") == newest.id


def test_what_was_kept_of_a_branch_is_found_by_id_and_tag_only(store):
    """It is no moment of its service: neither the newest of a name or life, nor that before a time or an event."""
    own = commit(store, wall_ns=2 * SECOND, capture="1", sequence=5)
    kept = commit(store, wall_ns=2 * SECOND, capture="2", sequence=6, trigger=Trigger.BRANCH)
    store.tag("healed", kept.id)
    assert [store.resolve(text) for text in ("healed", kept.id[:12])] == [kept.id] * 2
    assert [store.resolve(text) for text in ("pay", "pay@{0}", "pay@{now}")] == [own.id] * 3
    assert [store.latest_of_life("L1"), store.before_event("L1", 9)] == [own, own]
    assert [(line.newest, line.commits) for line in store.targets()] == [(own.id, 2)]
    store.delete(own.id)
    assert [line.newest for line in store.targets()] == [kept.id]


def test_braces_count_back(store):
    ids = [commit(store, wall_ns=number * SECOND, capture=f"{number}").id for number in (1, 2, 3)]
    assert [store.resolve(f"pay@{{{count}}}") for count in (0, 1, 2)] == ids[::-1]
    with pytest.raises(RefUnknown):
        store.resolve("pay@{3}")


def test_braces_with_a_time_find_what_was_newest_then(store):
    now = time.time_ns()
    old, new = (commit(store, wall_ns=now - ago * 60 * SECOND, capture=f"{ago}").id for ago in (10, 2))
    assert store.resolve("pay@{5 minutes ago}") == old
    assert store.resolve("pay@{1 minute ago}") == new
    assert store.resolve("pay@{2099-01-01 00:00:00}") == new
    with pytest.raises(RefUnknown):
        store.resolve("pay@{1 hour ago}")


def test_a_tag_comes_before_an_id_and_an_id_before_a_target(store):
    one = commit(store, capture="1")
    other = commit(store, capture="2", name=one.id[:6])
    assert store.resolve(one.id[:6]) == one.id
    store.tag(one.id[:6], other.id)
    assert store.resolve(one.id[:6]) == other.id


STRANGE = [
    *(
        "",
        ".",
        "..",
        "/",
        "a/b",
        "../format",
        "tags/x",
        "a\0b",
        "a\nb",
        "\udcff",
        "x" * 300,
        "x" * 5000,
        "@{}",
        "@{1}",
    ),
    *(
        "pay@{",
        "pay@{soon}",
        "pay@{²}",
        "pay@{99999999999999999999}",
        "pay@{-1}",
        "pay@{99999999999 weeks ago}",
    ),
    *("pay@{" + "9" * 5000 + " days ago}", "pay@{0001-01-01}", "pay@{2026-13-01}", "*", "pay;--", "%", "'"),
]


@pytest.mark.parametrize("text", STRANGE, ids=ascii)
def test_any_text_that_names_nothing_is_an_unknown_ref(store, text):
    commit(store)
    with pytest.raises(RefUnknown):
        store.resolve(text)


@pytest.mark.parametrize("text", ["pay@{999999999 weeks ago}", "pay@{9999-12-31}"])
def test_times_beyond_the_index_are_no_error_of_their_own(store, text):
    one = commit(store)
    try:
        assert store.resolve(text) == one.id
    except RefUnknown:
        assert "ago" in text


@pytest.mark.parametrize(
    "name", [*STRANGE[:12], "a b", "a\tb", ".hidden", "a@b", "a:b", "a~1", "a^", "a\u2028b"], ids=ascii
)
def test_a_tag_cannot_be_what_means_something_else(store, home, name):
    one = commit(store)
    with pytest.raises(UsageError):
        store.tag(name, one.id)
    with pytest.raises(RefUnknown):
        store.untag(name)
    assert store.tags() == {}
    assert (home / "format").exists()


def test_a_tag_is_moved_only_by_force(store):
    one, other = commit(store, capture="1"), commit(store, capture="2")
    store.tag("best", one.id)
    with pytest.raises(UsageError, match="exists") as caught:
        store.tag("best", other.id)
    assert one.id[:10] in (caught.value.cause or "")
    store.tag("best", other.id, force=True)
    assert store.tags() == {"best": other.id}


def test_a_tag_needs_a_commit(store):
    with pytest.raises(RefUnknown):
        store.tag("best", "0" * 64)  # type: ignore[arg-type]


def test_a_removed_tag_is_gone_and_its_commit_stays(store):
    one = commit(store)
    store.tag("best", one.id)
    store.untag("best")
    assert store.tags() == {}
    assert is_whole(store, one.id)
    with pytest.raises(RefUnknown):
        store.untag("best")


def test_the_commit_before_an_event_is_of_the_same_life(store):
    first = commit(store, sequence=10, capture="1")
    second = commit(store, sequence=20, capture="2")
    commit(store, sequence=15, life="L2", capture="3")
    assert store.before_event("L1", 10) is None
    assert store.before_event("L1", 11) == store.get(first.id)
    assert store.before_event("L1", 20) == store.get(first.id)
    assert store.before_event("L1", 21) == store.get(second.id)


def test_a_commit_without_a_cursor_counts_by_its_time(store):
    """GIVEN nobody told where the recording stood, WHEN a request began later, THEN the commit is before it; by time only."""
    early = commit(store, sequence=None, wall_ns=100, capture="1")
    assert store.before_event("L1", 5) is None
    assert store.before_event("L1", 5, 100) is None
    assert store.before_event("L1", 5, 101) == store.get(early.id)
    later = commit(store, sequence=3, wall_ns=200, capture="2")
    assert store.before_event("L1", 5, 300) == store.get(later.id)
    assert store.before_event("L1", 3, 150) == store.get(early.id)
    newest = commit(store, sequence=None, wall_ns=250, capture="3")
    assert store.before_event("L1", 5, 300) == store.get(newest.id)


def test_the_log_is_newest_first_of_one_or_all(store):
    one = commit(store, wall_ns=1, capture="1")
    other = commit(store, wall_ns=2, name="other")
    three = commit(store, wall_ns=3, capture="3")
    assert [line.id for line in store.log()] == [three.id, other.id, one.id]
    assert [line.id for line in store.log("pay")] == [three.id, one.id]
    assert [line.id for line in store.log("pay", 1)] == [three.id]
    assert store.log("\udcff") == []


def test_a_commit_that_does_not_fit_is_not_the_one_before_an_event(store):
    first = commit(store, sequence=10, capture="1")
    second = commit(store, sequence=20, capture="2")
    assert store.before_event("L1", 21, is_fit=lambda one: one.id != second.id) == store.get(first.id)
