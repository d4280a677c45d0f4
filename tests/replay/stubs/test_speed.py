from __future__ import annotations

import pytest

from relive.errors import UsageError
from relive.replay.stubs.speed import parse_speed


def test_recorded_pauses_are_divided() -> None:
    assert parse_speed("1").seconds(2e9) == 2
    assert parse_speed("10").seconds(2e9) == 0.2
    assert parse_speed("0.5").seconds(2e9) == 4
    assert parse_speed("max").seconds(2e9) == 0


@pytest.mark.parametrize("text", ["", "0", "-1", "nan", "inf", "fast", "1e9", "0.0"])
def test_what_is_no_speed_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--speed cannot be"):
        parse_speed(text)
