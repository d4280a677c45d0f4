"""How long something is valid, in words."""

from __future__ import annotations

import pytest

from relive.errors import UsageError
from relive.server.durations import parse_lifetime


@pytest.mark.parametrize(
    ("text", "seconds"), [("45s", 45), ("30m", 1800), ("12h", 43_200), ("90d", 7_776_000), ("never", None)]
)
def test_a_lifetime_is_a_number_with_its_unit(text, seconds):
    assert parse_lifetime(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "90", "d", "0d", "-1d", "1.5h", "1y", " 1d", "1d\n", "٣d", "9999999999w"]
)
def test_anything_else_is_refused(text):
    with pytest.raises(UsageError):
        parse_lifetime(text)
