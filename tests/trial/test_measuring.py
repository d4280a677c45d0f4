"""What strace writes, as numbers; the rest is measured of a real branch in ``tests/real/test_exploring.py``."""

from __future__ import annotations

from relive.trial.measuring import counted_calls

TABLE = """\
% time     seconds  usecs/call     calls    errors syscall
------ ----------- ----------- --------- --------- ----------------
 73.12    0.000340          17        20         3 openat
 26.88    0.000125           2        52           clock_gettime
  0.00    0.000000           0         1           pwrite64
------ ----------- ----------- --------- --------- ----------------
100.00    0.000465           6        73         3 total
"""


def test_calls_are_counted_with_and_without_errors_and_the_total_is_none() -> None:
    assert counted_calls(TABLE) == {"openat": 20, "clock_gettime": 52, "pwrite64": 1}
    assert counted_calls("") == {}
