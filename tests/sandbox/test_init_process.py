"""Process 1 of a branch and what is started beside it: where they are from their first moment on, and that nothing is left."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import signal
import subprocess
import traceback
import uuid
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from relive.checkpoint.criu import CriuTools
from relive.config import load_settings
from relive.kernel import procfs, seccomp
from relive.sandbox import cgroups
from relive.sandbox.cgroups import Groups
from relive.sandbox.init_process import FirstProcess
from support.waiting import eventually

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")

INIT = CriuTools(load_settings().tools_path).init
CLONE3 = 435
PRINTER = "cat /proc/self/cgroup; readlink /proc/self/ns/cgroup /proc/self/ns/pid; ls /proc/self/fd; env"


@pytest.fixture
def groups() -> Iterator[Groups]:
    made = Groups.make(f"test-{uuid.uuid4().hex[:8]}")
    if not made.directories:
        pytest.skip("no control groups can be made here")
    yield made
    made.remove()
    assert not any(directory.exists() for directory in made.directories)


@contextlib.contextmanager
def started(directories: Iterable[Path] = ()) -> Iterator[FirstProcess]:
    """Process 1; nothing of it is left behind the block."""
    before = set(procfs.children_of(os.getpid()))
    with FirstProcess(INIT, directories) as first:
        try:
            yield first
        finally:
            first.kill()
    assert set(procfs.children_of(os.getpid())) == before


def run(first: FirstProcess, program: str, *, keep: tuple[int, ...] = ()) -> list[str]:
    """Its lines, once it has ended well."""
    reading, writing = os.pipe()
    try:
        script = f"exec > /proc/self/fd/{writing}; {program}"
        process = first.execute(["/bin/sh", "-c", script], {"PATH": "/bin", "A": "b c"}, [writing, *keep])
        os.close(writing)
        with os.fdopen(reading, "r", closefd=False) as pipe:
            lines = pipe.read().splitlines()
        assert process.wait(60) == 0
        return lines
    finally:
        os.close(reading)


def test_all_are_in_their_groups_without_being_moved(groups: Groups, monkeypatch: pytest.MonkeyPatch) -> None:
    """GIVEN groups of a branch; WHEN process 1 and a program are started; THEN nobody has to be moved, so nobody waits for that."""
    moved: list[str] = []
    monkeypatch.setattr(cgroups, "_write", lambda path, _text: moved.append(path))
    with started(groups.directories) as first:
        groups.add(first.pid)
        first.own_groups()
        process = first.execute(["/bin/sleep", "1000"], {}, [])
        groups.add(process.pid)
        own = procfs.read_file(f"/proc/{first.pid}/cgroup")
        assert own == procfs.read_file(f"/proc/{process.pid}/cgroup")
        process.kill()
        assert process.wait() == -signal.SIGKILL
        assert not moved
        groups.add(os.getpid())
        assert {Path(path).parent for path in moved} == set(groups.directories)


def test_a_program_lives_beside_process_1_with_what_it_was_given(groups: Groups) -> None:
    with started(groups.directories) as first:
        first.own_groups()
        extra = os.open("/dev/null", os.O_RDONLY)
        lines = run(first, PRINTER, keep=(extra,))
        os.close(extra)
        shown = [line for line in lines if line.count(":") == 2]
        held = [line for line in lines if line.isdigit()]
        assert all(
            line.endswith(":/")
            for line in shown
            if any(f":{name}:" in line for name in ("memory", "pids", ""))
        )
        assert [os.readlink(f"/proc/{first.pid}/ns/{kind}") for kind in ("cgroup", "pid")] == [
            line for line in lines if line.startswith(("cgroup:[", "pid:["))
        ]
        assert os.readlink(f"/proc/{first.pid}/ns/pid") != os.readlink("/proc/self/ns/pid")
        assert str(extra) in held and len(held) == 6  # standard streams, the pipe, and that of the listing
        assert (
            "A=b c" in lines and "PATH=/bin" in lines and not any(line.startswith("HOME=") for line in lines)
        )


def test_one_that_does_not_end_is_waited_for_no_longer_than_asked() -> None:
    with started() as first:
        process = first.execute(["/bin/sleep", "1000"], {}, [])
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0)
        process.kill()
        assert process.wait(60) == process.wait() == -signal.SIGKILL
        process.kill()  # nobody, whoever has its number now


def test_a_program_that_cannot_be_executed_is_an_error_and_leaves_nothing() -> None:
    with started() as first:
        with pytest.raises(FileNotFoundError) as found:
            first.execute(["/nonexistent"], {}, [])
        assert found.value.errno == errno.ENOENT
        assert run(first, "echo fine") == ["fine"]


def test_no_word_or_variable_is_left_out() -> None:
    """GIVEN as many as are allowed; THEN the program has them all; WHEN there is one more, THEN nothing is started."""
    most = {f"V{number}": "v" for number in range(64)}
    shell = ["/bin/sh", "-c", "[ $# = 60 ] && [ $V0$V63 = vv ]", *map(str, range(61))]  # the first is $0
    with started() as first:
        assert first.execute(shell, most, []).wait(60) == 0
        for command, environment in ((shell, most | {"V64": "v"}), ([*shell, "60"], most)):
            with pytest.raises(OSError) as found:
                first.execute(command, environment, [])
            assert found.value.errno == errno.E2BIG
        assert run(first, "echo fine") == ["fine"]
    with pytest.raises(OSError) as found:
        FirstProcess(INIT, [Path("/nonexistent")] * 65)
    assert found.value.errno == errno.E2BIG


def _is_dead(pid: int) -> bool:
    stat = procfs.read_stat(pid)
    return stat is not None and stat.state in "ZX"


def succeeds_in_a_child(work: Callable[[], None]) -> bool:
    """What it does to itself, its limits and filters, ends with it."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            work()
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    return os.waitpid(child, 0)[1] == 0


def test_they_start_where_clone3_is_refused(groups: Groups, monkeypatch: pytest.MonkeyPatch) -> None:
    """GIVEN a filter of system calls, as containers have it; WHEN they are started; THEN they are moved to their groups."""

    def work() -> None:
        for name in ("_IO_URING_SETUP", "_IO_URING_REGISTER"):
            monkeypatch.setattr(seccomp, name, CLONE3)
        seccomp.hide_io_uring()
        with started(groups.directories) as first:
            groups.add(first.pid)
            first.own_groups()
            assert run(first, "echo fine") == ["fine"]

    assert succeeds_in_a_child(work)


def _refuses_what_has_no_number_left(first: FirstProcess, last: int) -> None:
    for child in set(procfs.children_of(os.getpid())) - {first.pid}:  # its helper
        resource.prlimit(child, resource.RLIMIT_NOFILE, (last + 1, last + 1))
    with pytest.raises(OSError) as found:
        first.execute(["/bin/true"], {}, [last]).wait(60)  # one that is not reaped would hold process 1
    assert found.value.errno == errno.EINVAL


def test_a_descriptor_may_have_the_last_number_that_is_allowed() -> None:
    last = max(int(name) for name in os.listdir("/proc/self/fd")) + 32

    def work() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (last + 1, last + 65))
        with started() as first:
            os.dup2(0, last)
            shell = ["/bin/sh", "-c", f"[ $(ulimit -n) = {last + 1} ] && [ -e /proc/self/fd/{last} ]"]
            assert first.execute(shell, {"PATH": "/bin"}, [last]).wait(60) == 0
            _refuses_what_has_no_number_left(first, last)

    assert succeeds_in_a_child(work)


def test_all_end_with_a_caller_that_is_killed(groups: Groups) -> None:
    """GIVEN a process that has started them; WHEN it is killed; THEN process 1, its helper and what it had executed are gone."""
    reading, writing = os.pipe()
    maker = os.fork()
    if maker == 0:
        try:
            first = FirstProcess(INIT, groups.directories)
            process = first.execute(["/bin/sleep", "1000"], {}, [])
            children = {*procfs.children_of(os.getpid()), first.pid, process.pid}
            os.write(writing, " ".join(map(str, sorted(children))).encode() + b"\n")
            signal.pause()
        finally:
            os._exit(1)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        started = [int(word) for word in pipe.readline().split()]
    assert len(started) == 3 and all(procfs.exists(pid) for pid in started)
    os.kill(maker, signal.SIGKILL)
    os.waitpid(maker, 0)
    eventually(lambda: not any(procfs.exists(pid) and not _is_dead(pid) for pid in started), "their end")
