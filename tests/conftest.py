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
from support import measured, own_descriptors
from support.forker import Forker
from support.payments import Payments, payments_home
from support.syncless import wait_for_no_disk

# What is imported and collected is no garbage; looking for some meanwhile takes a third of that time.
gc.disable()
# A test makes tens of thousands of objects that go by themselves; circles are looked for seldomer than after each 700.
gc.set_threshold(20_000, 10, 10)

# Of test modules alone, and not of what they start: rewriting their assertions is more than half of what collecting costs, and is
# then done once and not in every run, also where the environment has PYTHONDONTWRITEBYTECODE.
sys.dont_write_bytecode = False

# Machines are shared: how long an example takes says nothing.
# Half of the usual examples, where a test does not say how many; outside CI each run draws others, and first what failed before.
settings.register_profile("suite", deadline=None, max_examples=50)
settings.load_profile("suite")
wait_for_no_disk()

# Files that take 10 s or more, longest first, and the rooms of what takes long else: begun last, one of them would keep one worker
# busy alone. Measured by `make test ARGS=--durations=150`, whose rows are summed by file; the order need not be exact.
_FIRST = """
real/test_fidelity_benchmark.py store/test_crashes.py mcp/test_every_tool.py real/test_reproduce.py real/test_trial.py
maintenance/test_gc.py examples/test_payments.py store/test_processes.py real/test_verdicts.py store/test_series.py
dashboard/test_journey.py server/test_servers.py real/test_next_steps.py chaos/test_chaos.py real/test_postgres.py
cli/test_without_root.py mcp/test_server.py real/test_frameworks.py remotes/test_breaks.py real/test_interventions.py
real/test_watched_units.py doctor/test_doctor_cmd.py server/test_mcp.py benchmarks/test_smallest.py
real/test_tasks_of_operations.py server/test_routes.py real/test_growth_benchmark.py server/test_host_operations.py
dashboard/test_views.py real/test_watching.py real/test_systemd.py checkpoint/test_micro_commits.py real/test_prices.py
real/test_bisect.py server/test_schema.py real/test_checkout.py real/test_daemons.py real/test_replay.py real/test_secrets.py
store/test_contents.py real/test_contract.py checkpoint/test_copied_ahead.py inprocess/test_databases.py
real server inprocess proxies dashboard protocols remotes store maintenance wrong_input watching checkpoint cli
""".split()
_NOTED = pytest.StashKey[Path]()


def _is_worker(config: pytest.Config) -> bool:
    return hasattr(config, "workerinput")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Of several processes each begins with what takes long; one alone ends with it: it shall say soon what is wrong."""
    here = Path(__file__).parent

    def place(item: pytest.Item) -> int:
        path = item.path.relative_to(here)
        return next(
            (_FIRST.index(name) for name in (str(path), path.parts[0]) if name in _FIRST), len(_FIRST)
        )

    places = {path: place(item) for path, item in {item.path: item for item in items}.items()}
    sign = 1 if _is_worker(config) else -1
    items.sort(key=lambda item: sign * places[item.path])


def pytest_collection_finish() -> None:
    """What was collected stays to the end: no later collection of garbage looks at it again, also not in a fork.

    The garbage among it stays as well: there is little, and to find it takes half a second in each worker.
    """
    gc.freeze()
    gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """What a file's tests leave stays to the end, too: garbage goes here, and what does not is looked at no more."""
    if nextitem is None or nextitem.path != item.path:
        gc.collect()
        gc.freeze()


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(measured)
    config.pluginmanager.register(own_descriptors)
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
