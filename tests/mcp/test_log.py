"""The log of a server is none of its answers."""

from __future__ import annotations

import subprocess
import sys

_LOGS = """
import structlog
early = structlog.get_logger()
from relive.mcp.log import log_to_stderr
log_to_stderr()
early.error("operation died", said="Traceback")
print("an answer")
"""


def test_what_is_logged_stands_on_stderr_and_answers_alone_on_stdout():
    done = subprocess.run([sys.executable, "-c", _LOGS], capture_output=True, text=True, check=True)
    assert done.stdout == "an answer\n"
    assert "operation died" in done.stderr
