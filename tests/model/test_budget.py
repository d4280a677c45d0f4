"""Budgets as users write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relive.errors import UsageError
from relive.model.budget import parse_budget


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("2GB/h", 2 * 10**9),
        ("500MiB/h", 500 << 20),
        ("1.5kB/h", 1500),
        ("1TiB/h", 1 << 40),
        ("7B/h", 7),
        ("none", None),
    ],
)
def test_a_budget_is_bytes_an_hour(text, found):
    assert parse_budget(text) == found


@pytest.mark.parametrize(
    "text", ["", "2GB", "5%", "0B/h", "-1GB/h", "1iB/h", "2GB/s", "1e9B/h", "inf", "0.1B/h"]
)
def test_what_is_none_is_refused_with_how_to_write_one(text):
    with pytest.raises(UsageError, match="--budget cannot be") as refused:
        parse_budget(text)
    assert "2GB/h" in refused.value.remedy and "--pause-share" in refused.value.remedy


@given(st.text(max_size=12))
def test_whatever_is_written_is_a_budget_or_refused(text):
    try:
        found = parse_budget(text)
    except UsageError:
        return
    assert found is None or found >= 1
