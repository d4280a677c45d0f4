"""What is forked is told from what is executed by nothing; and where it cannot be forked, nothing has been started."""

from __future__ import annotations

import fcntl
import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from relive.forkserver import asking
from relive.forkserver.rendezvous import connect
from relive.forkserver.starting import ForkedProcess, fork_module, start_module
from support.fork_servers import OwnServer
from support.waiting import eventually

TRIAL = "relive.forkserver.trial"
SECRET = os.urandom(16).hex()


def account(server: OwnServer, output: Path, *, may_fork: bool, **others: Any) -> dict[str, Any]:
    with output.open("wb") as file:
        process = start_module(
            TRIAL,
            ["--word", "a b"],
            streams=(subprocess.DEVNULL, file.fileno(), subprocess.DEVNULL),
            environment={**server.environment, "SECRET": SECRET},
            may_fork=may_fork,
            patient=True,
            **others,
        )
    assert isinstance(process, ForkedProcess) == may_fork
    assert process.wait(60) == 0
    return dict(json.loads(output.read_text()))


@contextmanager
def other_ways(directory: Path) -> Iterator[None]:
    """Within, this process hands down other things than it did when the server was started."""
    before = (
        Path.cwd(),
        os.umask(0o027),
        resource.getrlimit(resource.RLIMIT_NOFILE),
        signal.getsignal(signal.SIGHUP),
    )
    processors = os.sched_getaffinity(0)
    os.chdir(directory)
    os.sched_setaffinity(0, {min(processors)})
    highest = max(map(int, os.listdir("/proc/self/fd")))  # of a worker of the suite: other tests' files, too
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(200, highest + 50), before[2][1]))
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    try:
        yield
    finally:
        os.chdir(before[0])
        os.umask(before[1])
        resource.setrlimit(resource.RLIMIT_NOFILE, before[2])
        signal.signal(signal.SIGHUP, before[3])
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGUSR1})
        os.sched_setaffinity(0, processors)


def test_a_fork_is_as_what_is_executed(server: OwnServer, tmp_path: Path):
    server.fork().wait(60)  # the server is there, and has what this process hands down now
    with (tmp_path / "handed").open("w") as handed, other_ways(tmp_path):
        far = fcntl.fcntl(handed, fcntl.F_DUPFD, 150)
        numbers = [handed.fileno(), far]
        try:
            forked = account(server, tmp_path / "out", may_fork=True, handed=numbers)
            executed = account(server, tmp_path / "out", may_fork=False, handed=numbers)
        finally:
            os.close(far)
    assert executed["environment"]["SECRET"] == SECRET
    assert executed["descriptors"][str(far)] == str(tmp_path / "handed")
    assert executed["attributes"]["umask"] == "0027"
    for name, value in executed.items():
        assert forked[name] == value, name


def test_each_has_random_numbers_of_its_own(server: OwnServer):
    reading, writing = os.pipe()
    with os.fdopen(reading) as pipe:
        for _ in range(2):
            server.fork(TRIAL, "--random", output=writing).wait(60)
        os.close(writing)
        first, second = pipe.read().splitlines()
    assert first != second


def test_what_was_forked_before_is_in_no_later_one(server: OwnServer, tmp_path: Path):
    """The server reads nothing of what it is asked, so it can give nothing away."""
    account(server, tmp_path / "out", may_fork=True)
    pid = server.pid()
    assert pid is not None
    shown = Path(f"/proc/{pid}/environ").read_bytes()
    assert b"SECRET" not in shown
    held = b""
    with Path(f"/proc/{pid}/mem").open("rb", buffering=0) as memory:
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            where, rights, *_ = line.split()
            if rights.startswith("rw") and not line.endswith("[vvar]"):
                begin, end = (int(word, 16) for word in where.split("-"))
                memory.seek(begin)
                held += memory.read(end - begin)
    assert b"PYTHONRELIVETEST" in held
    assert SECRET.encode() not in held


def test_the_server_holds_nothing_of_who_started_it(server: OwnServer):
    """Whoever reads the output of a command would wait for the server's end, too."""
    server.fork().wait(60)
    directory = Path(f"/proc/{server.pid()}/fd")
    # Again where one is closed meanwhile: the server sees to a child that has ended.
    held = eventually(lambda: {int(path.name): os.readlink(path) for path in directory.iterdir()})
    assert [held.pop(number) for number in (0, 1, 2)] == [os.devnull] * 3
    assert held.pop(next(number for number, target in held.items() if target == f"{server.place}.lock"))
    # Where it listens, and of children that are not buried yet connections and handles.
    assert all(target.startswith(("socket:", "anon_inode:")) for target in held.values())


def test_its_end_is_told(server: OwnServer):
    failing = server.fork(TRIAL, "--exit", "7")
    assert failing.wait(60) == 7
    assert failing.poll() == 7
    waiting = server.fork(TRIAL, "--wait")
    assert waiting.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        waiting.wait(0)
    waiting.kill()
    assert waiting.wait(60) == -signal.SIGKILL


def test_the_next_start_without_a_server_goes_without_and_begins_another(server: OwnServer):
    before = server.fork(TRIAL, "--wait")
    first = server.pid()
    server.kill()
    assert before.poll() is None  # it goes on
    impatient = fork_module(TRIAL, [], streams=(-3, -3, -3), environment=server.environment)
    assert impatient is None
    second = eventually(server.pid)
    assert second != first
    before.kill()
    assert before.wait(60) == -signal.SIGKILL  # though nobody could say so


def test_what_cannot_be_so_in_a_fork_is_executed(server: OwnServer, monkeypatch):
    """Who asks says so in time, and nothing has been started."""
    server.fork().wait(60)
    wrong = {"control groups": "0::/nowhere/at/all\n"}
    own = asking.settable_attributes
    monkeypatch.setattr(asking, "settable_attributes", lambda: own() | wrong)
    assert fork_module(TRIAL, [], streams=(-3, -3, -3), environment=server.environment, patient=True) is None


def test_who_asks_and_is_gone_has_started_nothing(server: OwnServer):
    server.fork().wait(60)
    for _ in range(3):
        connection = connect(server.place)
        assert connection is not None
        connection.send(b"\0")  # no request
        connection.close()
    assert server.fork().wait(60) == 0


def test_a_server_that_stands_still_is_not_waited_for_and_runs_nothing_later(server: OwnServer, monkeypatch):
    server.fork().wait(60)
    pid = server.pid()
    assert pid is not None
    reading, writing = os.pipe()
    monkeypatch.setattr(asking, "ANSWER_LIMIT_S", 0.2)
    os.kill(pid, signal.SIGSTOP)
    try:
        streams = (subprocess.DEVNULL, writing, subprocess.DEVNULL)
        assert fork_module(TRIAL, [], streams=streams, environment=server.environment) is None
    finally:
        os.kill(pid, signal.SIGCONT)
    monkeypatch.undo()
    # The child before has been seen to by now, or waits for a word that never comes.
    assert server.fork().wait(60) == 0
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:  # to its end: until that child is gone
        assert pipe.read() == b""


def test_the_server_takes_no_part_in_what_it_did_not_import(server: OwnServer):
    assert (
        fork_module("json.tool", [], streams=(-3, -3, -3), environment=server.environment, patient=True)
        is None
    )


def test_executed_where_it_may_not_fork():
    process = start_module(TRIAL, ["--exit", "3"], streams=(-3, -3, -3), may_fork=False)
    assert isinstance(process, subprocess.Popen)
    assert process.wait(60) == 3
    assert process.args[0] == sys.executable  # type: ignore[index]


_IN_A_GROUP = """
import json, os, sys
from pathlib import Path
from relive.forkserver.starting import ForkedProcess, start_module
Path(sys.argv[1], "cgroup.procs").write_text("0")
os.nice(3)
Path("/proc/self/oom_score_adj").write_text("200")
for may_fork in (True, False):
    process = start_module("relive.forkserver.trial", [], streams=(-3, 1, 2), may_fork=may_fork, patient=True)
    assert isinstance(process, ForkedProcess) == may_fork
    assert process.wait(60) == 0
"""


@pytest.fixture
def group() -> Iterator[Path]:
    """A control group of either version."""
    made = next(filter(None, map(make_group, ("pids", "memory", "freezer", "unified", ""))), None)
    if made is None:
        pytest.skip("no control group can be made here")
    yield made
    members = made / "cgroup.procs"
    eventually(lambda: not members.read_text())
    made.rmdir()


def make_group(hierarchy: str) -> Path | None:
    made = Path("/sys/fs/cgroup") / hierarchy / f"relive-test-{os.getpid()}"
    try:
        made.mkdir()
    except OSError:
        return None
    return made if (made / "cgroup.procs").exists() else None


_STARTS_A_SERVER = """
import sys
from pathlib import Path
from relive.forkserver.starting import fork_module
Path(sys.argv[1], "cgroup.procs").write_text("0")
assert fork_module("relive.forkserver.trial", [], streams=(-3, -3, -3), patient=True).wait(60) == 0
"""


@pytest.mark.real
def test_the_server_is_in_no_control_group_of_who_started_it(server: OwnServer, group: Path):
    """There its memory would count, and its end would come with that of the group."""
    top = group.parent / "cgroup.procs"
    if subprocess.run(["sh", "-c", f"echo $$ >{top}"], stderr=subprocess.DEVNULL, check=False).returncode:
        pytest.skip("nobody may go to the top here")
    server.kill()
    subprocess.run(
        [sys.executable, "-c", _STARTS_A_SERVER, group], env=server.environment, check=True, timeout=100
    )
    pid = server.pid()
    assert pid is not None
    assert group.name not in Path(f"/proc/{pid}/cgroup").read_text()


@pytest.mark.real
def test_a_fork_is_in_the_control_groups_of_who_asks(server: OwnServer, group: Path):
    server.fork().wait(60)  # started elsewhere, with other priorities
    done = subprocess.run(
        [sys.executable, "-c", _IN_A_GROUP, group],
        env=server.environment,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    forked, executed = (json.loads(line)["attributes"] for line in done.stdout.splitlines())
    assert group.name in executed["control groups"]
    assert forked == executed
