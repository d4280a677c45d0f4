"""An operation in a process of its own: its result, its errors, its progress, and its end when nobody wants it any more."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from relive.config import Settings
from relive.errors import Cancelled, IncidentUnknown, ReliveError, UsageError
from relive.kernel import procfs
from relive.operations.catalogue import OPERATIONS
from relive.operations.health import DOCTOR, DoctorParams
from relive.operations.operation import Operation
from relive.operations.replays import REPLAY, ReplayParams
from relive.operations.storage import STATS, VERIFY, StatsParams, VerifyParams
from relive.operations.subprocess_runner import perform_apart
from relive.store import Store
from support.fork_servers import OwnServer
from support.waiting import LIMIT


class Heard:
    """A ``Progress`` that notes what it is told."""

    def __init__(self) -> None:
        self.said: list[tuple[str, object]] = []

    @contextmanager
    def progress(self, what: str, total: int) -> Iterator[Callable[[int], None]]:
        self.said.append((what, total))
        yield lambda done: self.said.append((what, f"{done} done"))
        self.said.append((what, "over"))

    transfer = progress

    def status(self, text: str) -> None:
        self.said.append(("told", text))


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    made = Settings(home=tmp_path / "home")
    Store(made.store).close()
    return made


def test_its_result_is_what_the_function_returns(settings):
    heard = Heard()
    found = perform_apart(VERIFY, settings, VerifyParams(), heard)
    assert (found.commits, found.problems) == (0, [])
    assert perform_apart(STATS, settings, StatsParams()).commits == []
    assert all(begun in {what for what, state in heard.said if state == "over"} for begun, _ in heard.said)


def test_its_error_is_of_the_same_class_with_all_its_parts(settings):
    with pytest.raises(IncidentUnknown) as raised:
        perform_apart(REPLAY, settings, ReplayParams(what="17"), is_first=False)
    assert raised.value.message == "there is no incident 17"
    assert raised.value.remedy == "`relive incidents` lists them"
    with pytest.raises(UsageError):
        perform_apart(REPLAY, settings, ReplayParams(what="17", speed="quick"), is_first=False)


def test_params_that_the_other_side_does_not_understand_is_an_error(settings):
    other: Operation[VerifyParams, object] = Operation(
        "replay", VerifyParams, REPLAY.result, VERIFY.run, VERIFY.faces
    )  # type: ignore[type-var, arg-type]
    with pytest.raises(UsageError, match="replay"):
        perform_apart(other, settings, VerifyParams())


def test_cancelled_it_ends_with_an_error_of_its_own(settings):
    cancel = threading.Event()
    cancel.set()
    with pytest.raises(Cancelled):
        perform_apart(DOCTOR, settings, DoctorParams(), cancel=cancel)


def test_one_that_was_killed_before_it_was_told_what_to_do_is_told(settings):
    def kill(pid: int) -> None:
        with os.fdopen(os.pidfd_open(pid)) as handle:
            os.kill(pid, signal.SIGKILL)
            select.select([handle], [], [])

    with pytest.raises(ReliveError, match="doctor ended without a result"):
        perform_apart(DOCTOR, settings, DoctorParams(), started=kill)


def test_it_is_forked_from_the_fork_server_where_that_is_allowed(settings):
    server = OwnServer(os.environ)  # the one that all commands here have
    server.fork().wait(LIMIT)
    parents = []

    def note(pid: int) -> None:
        stat = procfs.read_stat(pid)
        assert stat is not None
        parents.append(stat.parent)

    for allowed in (True, False):
        perform_apart(
            STATS, settings.model_copy(update={"fork_server": allowed}), StatsParams(), started=note
        )
    assert parents == [server.pid(), os.getpid()]


def test_it_ends_when_its_caller_does(settings):
    process = subprocess.Popen(
        [sys.executable, "-m", "relive.operations", "doctor"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={"RELIVE_HOME": str(settings.home), "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"},
    )
    assert process.stdin is not None
    process.stdin.write(b"{}\n")
    out, _ = process.communicate(timeout=60)  # closes standard input
    assert process.returncode == 130
    assert b"result" not in out


def test_every_operation_has_its_name(settings):
    assert all(name == one.name for name, one in OPERATIONS.items())
