"""A child is reaped, whether it ends by itself or has to be killed."""

from __future__ import annotations

import subprocess
import sys

from relive.kernel.children import wait_or_kill


def _child(program: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-S", "-c", program], stdin=subprocess.PIPE)


def test_one_that_ends_by_itself_keeps_its_status() -> None:
    with _child("import sys; sys.stdin.read(); sys.exit(7)") as child:
        assert child.stdin is not None
        child.stdin.close()
        assert wait_or_kill(child, 60.0) == 7


def test_one_that_does_not_is_killed_and_reaped() -> None:
    with _child("import sys; sys.stdin.read()") as child:
        assert wait_or_kill(child, 0.0) == -9
        assert child.returncode == -9
