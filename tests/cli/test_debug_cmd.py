"""How a native process is debugged; what `relive debug` does with real failures is in ``tests/real/test_debug.py``."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from relive.operations.host_debugging import GDB


@pytest.mark.skipif(shutil.which("gdb") is None, reason="needs gdb")
def test_gdb_loads_nothing_that_a_program_brings_along(tmp_path: Path) -> None:
    """GIVEN a program with a script beside it, in a directory with another, that gdb is told to trust, THEN it runs neither."""
    program = tmp_path / "hostile"
    shutil.copy("/bin/true", program)
    for name in ("hostile-gdb.py", ".gdbinit"):
        said = "print('caught')" if name.endswith(".py") else "echo caught\\n"
        (tmp_path / name).write_text(said)
    trusting = ["-iex", f"add-auto-load-safe-path {tmp_path}"]
    command = [*trusting, "-batch", str(program)]
    careless = subprocess.run(["gdb", *command], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "caught" in careless.stdout
    careful = subprocess.run([*GDB, *command], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "caught" not in careful.stdout
