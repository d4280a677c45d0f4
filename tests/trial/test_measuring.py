"""What strace writes, as numbers; and a real process that is measured while it allocates and opens files."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from relive.kernel import procfs
from relive.model.outcome import Measured
from relive.operations.diverging import _measured_changes
from relive.trial.measuring import BranchMeter, counted_calls

PROGRAM = """
print('ready', flush=True)
input()
held = [bytes(1000) for _ in range(400)]
for _ in range(50): open('/dev/null').close()
print('done', flush=True)
input()
"""

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


def test_a_process_is_measured_between_two_moments_and_let_go(tmp_path: Path) -> None:
    file = tmp_path / "service.py"
    file.write_text(PROGRAM)
    with subprocess.Popen(
        [sys.executable, str(file)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        meter = BranchMeter(cast(Any, SimpleNamespace(facts=SimpleNamespace(root=process.pid))))
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.stdout.readline() == "done\n"
        measured = meter.end()
        meter.close()
        assert procfs.status_field(process.pid, "TracerPid") == "0"
        process.stdin.write("\n")
        process.stdin.close()
        assert process.wait() == 0
    assert measured.troubles == []
    assert measured.system_calls["openat"] >= 50
    assert 400_000 < measured.allocations[f"{file}:4"] < 500_000
    assert measured.figures["processes"] == 1


def test_only_what_differs_is_told_of_two_measured_runs() -> None:
    one = Measured(system_calls={"read": 3, "write": 1}, allocations={}, figures={"threads": 2})
    other = Measured(system_calls={"read": 3, "openat": 1}, allocations={"a.py:3": 9}, figures={"threads": 2})
    told = _measured_changes(one, other)
    named = [(change.name, change.before, change.after) for change in told["system_calls"]]
    assert named == [("openat", None, "1"), ("write", "1", None)]
    assert [change.name for change in told["allocations"]] == ["a.py:3"] and told["figures"] == []
    assert _measured_changes(one, None) == {}
