"""For the whole suite: a CRIU failure that Relive cannot explain fails the run, wherever it happened.

Commands and agents are processes of their own, and many a test expects that something fails; so such failures are noted
in a file (see ``engine.failures``) and looked at when all tests are over.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from relive.engine.failures import UNKNOWN_NOTED_IN

_NOTED = pytest.StashKey[Path]()


def pytest_configure(config: pytest.Config) -> None:
    descriptor, name = tempfile.mkstemp(prefix="relive-unknown-")
    os.close(descriptor)
    config.stash[_NOTED] = Path(name)
    os.environ[UNKNOWN_NOTED_IN] = name


def pytest_sessionfinish(session: pytest.Session) -> None:
    if session.config.stash[_NOTED].read_text() and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    lines = config.stash[_NOTED].read_text().splitlines()
    if lines:
        terminalreporter.section("CRIU failures without an explanation", red=True)
        terminalreporter.write_line("Each needs a rule in src/relive/engine/failures.py; what CRIU said:")
        for line in dict.fromkeys(lines):
            terminalreporter.write_line(f"  {line} ({lines.count(line)} times)")


def pytest_unconfigure(config: pytest.Config) -> None:
    if _NOTED in config.stash:
        config.stash[_NOTED].unlink(missing_ok=True)
    os.environ.pop(UNKNOWN_NOTED_IN, None)
