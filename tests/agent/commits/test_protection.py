"""What does not work, since when, and how long to wait."""

from __future__ import annotations

import errno
import itertools

from hypothesis import given
from hypothesis import strategies as st

from relive.agent.commits.protection import Protection, retry_pause
from relive.errors import DiskFull
from relive.model.protection import Trouble


@given(times=st.integers(1, 10**9), longest=st.floats(1, 1e6))
def test_waits_grow_to_the_longest_and_never_beyond(times: int, longest: float) -> None:
    assert 1.0 <= retry_pause(times, longest) <= retry_pause(times + 1, longest) <= longest


def test_the_first_tries_come_soon() -> None:
    assert [retry_pause(times) for times in range(1, 9)] == [1, 2, 4, 8, 16, 32, 60, 60]


def test_a_trouble_has_the_time_of_the_first_failure_and_the_words_of_the_last() -> None:
    protection = Protection(now_ns=itertools.count(7).__next__)
    protection.failed("commits", ValueError("x"))
    protection.failed("commits", DiskFull("no space", cause="quota", remedy="make room"))
    (found,) = protection.as_json()
    assert Trouble.model_validate(found) == Trouble(
        part="commits",
        since_wall_ns=7,
        times=2,
        code="disk-full",
        message="no space",
        cause="quota",
        remedy="make room",
    )


def test_what_works_again_is_no_trouble_and_the_others_are() -> None:
    protection = Protection()
    protection.failed("commits", ValueError("x"))
    protection.failed("proxy", ValueError("y"))
    protection.works("commits")
    protection.works("memory")
    assert [one["part"] for one in protection.as_json()] == ["proxy"]


def test_a_full_disk_is_told_as_one_whatever_met_it() -> None:
    """Not as an error that nobody had foreseen, to be reported."""
    protection = Protection()
    protection.failed("inside", OSError(errno.ENOSPC, "No space left on device"))
    (found,) = protection.as_json()
    assert (found["code"], found["message"]) == ("disk-full", "no space left; the service runs on")
    assert "free space" in str(found["remedy"])
