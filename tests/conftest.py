"""For the whole suite: on how many processes it runs, and that a CRIU failure that Relive cannot explain fails the run.

Commands and agents are processes of their own, and many a test expects that something fails; so such failures are noted
in a file (see ``checkpoint.criu_errors``) and looked at when all tests are over. The workers of ``pytest -n`` note them in the
file of the process that started them.
"""

from __future__ import annotations

import gc
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from real.harness import Relive
from relive.checkpoint.criu_errors import UNKNOWN_NOTED_IN
from support import measured
from support.forker import Forker
from support.payments import Payments, payments_home
from support.syncless import wait_for_no_disk

# Of test modules alone, and not of what they start: rewriting their assertions is more than half of what collecting costs, and is
# then done once and not in every run, also where the environment has PYTHONDONTWRITEBYTECODE.
sys.dont_write_bytecode = False

# Machines are shared: how long an example takes says nothing.
settings.register_profile("suite", deadline=None)
settings.load_profile("suite")
wait_for_no_disk()

# Rooms of which single files take long, longest first: begun last, one of them would keep one worker busy alone.
_FIRST = (
    "chaos",
    "examples",
    "real",
    "inprocess",
    "server",
    "proxies",
    "dashboard",
    "doctor",
    "protocols",
    "remotes",
    "store",
    "maintenance",
    "wrong_input",
    "watching",
    "checkpoint",
    "cli",
)
_NOTED = pytest.StashKey[Path]()


def _is_worker(config: pytest.Config) -> bool:
    return hasattr(config, "workerinput")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not _is_worker(config):
        return
    here = Path(__file__).parent

    def place(item: pytest.Item) -> int:
        room = item.path.relative_to(here).parts[0]
        return _FIRST.index(room) if room in _FIRST else len(_FIRST)

    items.sort(key=place)


def pytest_collection_finish() -> None:
    """What was collected stays to the end: no later collection of garbage looks at it again, also not in a fork."""
    gc.collect()
    gc.freeze()


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(measured)
    if _is_worker(config):
        return
    descriptor, name = tempfile.mkstemp(prefix="relive-unknown-")
    os.close(descriptor)
    config.stash[_NOTED] = Path(name)
    os.environ[UNKNOWN_NOTED_IN] = name


def pytest_sessionfinish(session: pytest.Session) -> None:
    if _is_worker(session.config):
        return
    if session.config.stash[_NOTED].read_text() and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    lines = config.stash[_NOTED].read_text().splitlines()
    if lines:
        terminalreporter.section("CRIU failures without an explanation", red=True)
        terminalreporter.write_line(
            "Each needs a rule in src/relive/checkpoint/criu_errors.py; what CRIU said:"
        )
        for line in dict.fromkeys(lines):
            terminalreporter.write_line(f"  {line} ({lines.count(line)} times)")


def pytest_unconfigure(config: pytest.Config) -> None:
    if _NOTED in config.stash:
        config.stash[_NOTED].unlink(missing_ok=True)
        os.environ.pop(UNKNOWN_NOTED_IN, None)


@pytest.fixture
def memory_directory() -> Iterator[Path]:
    """A directory in memory, for what makes and removes thousands of small files: no disk is waited for, whoever else writes."""
    with tempfile.TemporaryDirectory(prefix="relive-test-", dir="/dev/shm") as name:
        yield Path(name)


@pytest.fixture(scope="session")
def forker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forker]:
    made = Forker(tmp_path_factory.mktemp("forker"))
    yield made
    made.close()


@pytest.fixture(scope="session")
def payments(forker: Forker) -> Iterator[Payments]:
    """The payments example after its failure; it goes on running, and tests only look, commit, restore and replay."""
    Relive.commands = forker
    with payments_home() as made:
        yield made
