"""Budgets as users write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relive.errors import UsageError
from relive.model.budget import parse_budget


@pytest.mark.parametrize(
    ("text", "bytes_", "share"),
    [
        ("2GB/h", 2 * 10**9, None),
        ("500MiB/h", 500 << 20, None),
        ("1.5kB/h", 1500, None),
        ("1TiB/h", 1 << 40, None),
        ("7B/h", 7, None),
        ("none", None, None),
        ("5%", None, 0.05),
        ("0.5%", None, 0.005),
        ("100%", None, 1.0),
        ("5%,2GB/h", 2 * 10**9, 0.05),
        ("7B/h,5%", 7, 0.05),
    ],
)
def test_a_budget_is_bytes_an_hour_or_a_share_of_the_time(text, bytes_, share):
    assert parse_budget(text) == (bytes_, share)


@pytest.mark.parametrize(
    "text",
    [
        *("", "2GB", "0B/h", "-1GB/h", "1iB/h", "2GB/s", "1e9B/h", "inf", "0.1B/h"),
        *("0%", "101%", "-5%", "5 %", "%", "5%,6%", "1B/h,2B/h", "5%,", "5%,none", "none,5%", "٥%"),
    ],
)
def test_what_is_none_is_refused_with_how_to_write_one(text):
    with pytest.raises(UsageError, match="--budget cannot be") as refused:
        parse_budget(text)
    assert "2GB/h" in refused.value.remedy and "5%" in refused.value.remedy


@given(st.text(max_size=12))
def test_whatever_is_written_is_a_budget_or_refused(text):
    try:
        found = parse_budget(text)
    except UsageError:
        return
    assert found.bytes is None or found.bytes >= 1
    assert found.share is None or 0 < found.share <= 1
