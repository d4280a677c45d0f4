"""What processes have read and written."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from relive.kernel.io_counts import io_counts
from support.waiting import eventually

WRITER = """
import os, sys
file = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT)
for line in sys.stdin:
    os.write(file, bytes(1 << 16))
    print("written", flush=True)
"""


def test_a_process_that_writes_is_seen(tmp_path: Path) -> None:
    command = [sys.executable, "-c", WRITER, str(tmp_path / "file")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdin is not None and writer.stdout is not None
        writer.stdin.write("once\n")
        writer.stdin.flush()
        assert writer.stdout.readline() == "written\n"
        before = io_counts()[writer.pid]
        writer.stdin.write("again\n")
        writer.stdin.flush()
        assert writer.stdout.readline() == "written\n"
        eventually(lambda: io_counts()[writer.pid] - before >= 1 << 16)
        writer.stdin.close()
