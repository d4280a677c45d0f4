"""What people write to name a commit, read as a value."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relive.errors import RefUnknown
from relive.store.names import AtTime, Back, CommitName, parse_reference

NOW = 1_700_000_000_000_000_000


def parse(text: str):
    return parse_reference(text, now_ns=NOW)


@pytest.mark.parametrize(
    "text", ["pay", "1234abcd", "v1.0", "", "@", "pay@", "pay@{1", "pay{1}", "@{1}", "a@b@{1}"]
)
def test_without_whole_braces_it_is_a_name(text):
    assert parse(text) == CommitName(text)


@pytest.mark.parametrize(
    ("text", "reference"),
    [
        ("pay@{}", Back("pay", 0)),
        ("pay@{now}", Back("pay", 0)),
        ("pay@{0}", Back("pay", 0)),
        ("pay@{ 12 }", Back("pay", 12)),
        ("pid:1234@{3}", Back("pid:1234", 3)),
        ("pay@{1 second ago}", AtTime("pay", NOW - 10**9)),
        ("pay@{90 seconds ago}", AtTime("pay", NOW - 90 * 10**9)),
        ("pay@{1.5 minutes ago}", AtTime("pay", NOW - 90 * 10**9)),
        ("pay@{2 hours ago}", AtTime("pay", NOW - 7200 * 10**9)),
        ("pay@{1 day ago}", AtTime("pay", NOW - 86400 * 10**9)),
        ("pay@{1 week ago}", AtTime("pay", NOW - 7 * 86400 * 10**9)),
        ("pay@{2023-11-14T22:13:20+00:00}", AtTime("pay", NOW)),
        ("pay@{2023-11-14 22:13:20Z}", AtTime("pay", NOW)),
    ],
)
def test_braces_hold_a_count_or_a_time(text, reference):
    assert parse(text) == reference


def test_a_time_without_a_zone_is_local(monkeypatch):
    monkeypatch.setenv("TZ", "America/St_Johns")
    time.tzset()
    assert parse("pay@{2023-11-14 18:43:20}") == AtTime("pay", NOW)
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    "when",
    [
        "soon",
        "-1",
        "1.5",
        "²",
        "٣",
        "2 minutes",
        "minutes ago",
        "2 fortnights ago",
        "2023-13-01",
        "1e3 days ago",
        "9" * 20,
    ],
)
def test_anything_else_in_braces_is_refused_with_examples(when):
    with pytest.raises(RefUnknown) as caught:
        parse(f"pay@{{{when}}}")
    assert when in (caught.value.cause or "")
    assert "2 minutes ago" in (caught.value.remedy or "")


@given(st.text(), st.text())
def test_any_text_is_a_reference_or_unknown(name, when):
    try:
        reference = parse(f"{name}@{{{when}}}")
    except RefUnknown:
        return
    if isinstance(reference, AtTime):
        assert 0 <= reference.wall_ns < 1 << 63


@pytest.mark.parametrize(
    ("text", "is_prefix"),
    [("abc", False), ("abcd", True), ("0" * 64, True), ("0" * 65, False), ("ABCD", False), ("abcd\n", False)],
)
def test_four_to_64_digits_may_begin_an_id(text, is_prefix):
    assert CommitName(text).is_prefix is is_prefix
