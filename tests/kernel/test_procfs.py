"""Processes as /proc shows them: odd names, threads, sockets, and processes that go away."""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import pty
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from relive.kernel import libc, procfs
from support.waiting import eventually

from .helpers import fork

PR_SET_NAME = 15


def test_a_process_without_a_terminal_has_none_and_one_that_took_one_has_that():
    assert procfs.terminal_of(1 << 22) == 0
    ready, told = os.pipe()
    child, terminal = pty.fork()
    if child == 0:
        os.write(told, b"x")
        signal.pause()
        os._exit(0)
    try:
        assert os.read(ready, 1) == b"x"
        assert os.major(procfs.terminal_of(child)) == 136
        assert Path(f"/dev/pts/{os.minor(procfs.terminal_of(child))}").is_char_device()
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        for number in (ready, told, terminal):
            os.close(number)


def test_the_dead_have_no_name() -> None:
    assert procfs.name_of(os.getpid()) == Path("/proc/self/comm").read_text().rstrip("\n")
    pid = fork()
    if pid == 0:
        os._exit(0)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    assert procfs.name_of(pid) is None, "a zombie"
    os.waitpid(pid, 0)
    assert procfs.name_of(pid) is None


@contextlib.contextmanager
def child(work=lambda: None) -> Iterator[int]:
    """A process that has done its work and waits."""
    reading, writing = os.pipe()
    wait_reading, wait_writing = os.pipe()
    pid = fork()
    if pid == 0:
        os.close(wait_writing)
        work()
        os.write(writing, b"r")
        os.read(wait_reading, 1)
        os._exit(0)
    os.close(wait_reading)
    os.read(reading, 1)
    yield pid
    os.close(wait_writing)
    os.close(reading)
    os.close(writing)
    os.waitpid(pid, 0)


@contextlib.contextmanager
def zombie() -> Iterator[int]:
    pid = fork()
    if pid == 0:
        os._exit(0)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    yield pid
    os.waitpid(pid, 0)


def rename(name: bytes):
    return lambda: libc.call("prctl", PR_SET_NAME, ctypes.c_char_p(name), 0, 0, 0)


GONE = 2**22 + 5  # above the highest pid that Linux gives

NAMES = [b"a) b (", b"x) S 1 (", b")", b"(", b"", b"a b", b"tab\t", b"line\nline", b"\xff\xfe"]


@pytest.mark.parametrize("name", NAMES, ids=ascii)
def test_a_process_of_any_name_is_read(name):
    with child(rename(name)) as pid:
        stat = procfs.read_stat(pid)
        assert stat is not None
        assert stat.comm == name.decode(errors="replace")
        assert (stat.pid, stat.parent) == (pid, os.getpid())
        assert stat.state in "SR"
        assert not stat.kernel_thread


@pytest.mark.parametrize(
    "name",
    [
        *NAMES,
    ],
    ids=ascii,
)
def test_a_field_of_the_status_is_read_whatever_the_name(name):
    with child(rename(name)) as pid:
        assert procfs.status_field(pid, "PPid") == str(os.getpid())


def test_a_name_cannot_pretend_to_be_a_field():
    """A new line in a name is escaped in /proc/PID/status."""
    with child(rename(b"x\nPPid:\t1")) as pid:
        assert procfs.status_field(pid, "PPid") == str(os.getpid())


def test_a_zombie_is_not_there_but_can_be_read():
    with zombie() as pid:
        stat = procfs.read_stat(pid)
        assert stat is not None
        assert stat.state == "Z"
        assert not procfs.exists(pid)
        assert not procfs.is_same_process(pid, stat.start_ticks)


LEFT_BY_ITS_MAIN_THREAD = """
import ctypes, threading
def rest():
    print("r", flush=True)
    input()
threading.Thread(target=rest).start()
ctypes.CDLL(None).syscall(60, 0)  # exit(2), of this thread alone
"""


def test_a_process_goes_on_when_its_main_thread_has_ended():
    """Then it still holds its files and sockets, as one does whose other threads are about to be killed."""
    command = [sys.executable, "-c", LEFT_BY_ITS_MAIN_THREAD]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.read(1)
        eventually(
            lambda: (found := procfs.read_stat(process.pid)) and found.state == "Z", "its main thread ends"
        )
        stat = procfs.read_stat(process.pid)
        assert stat is not None and stat.threads == 2
        assert procfs.exists(process.pid)
        assert procfs.is_same_process(process.pid, stat.start_ticks)
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert not procfs.exists(process.pid)


def test_a_process_that_is_gone_gives_nothing_and_no_error():
    assert procfs.read_stat(GONE) is None
    assert not procfs.exists(GONE)
    assert procfs.threads_of(GONE) == []
    assert procfs.children_of(GONE) == []
    assert procfs.tree_of(GONE) == [GONE]
    assert procfs.status_field(GONE, "Name") is None
    assert procfs.namespace_pids(GONE) == []
    assert procfs.innermost_pid(GONE) is None
    assert list(procfs.read_maps(GONE)) == []


@pytest.mark.parametrize("name", NAMES, ids=ascii)
def test_a_process_of_any_name_tells_its_number(name):
    with child(rename(name)) as pid:
        assert procfs.innermost_pid(pid) == procfs.namespace_pids(pid)[-1]
        assert procfs.namespace_pids(pid)[0] == pid


def test_a_process_has_a_number_in_each_of_its_namespaces():
    command = ["unshare", "--pid", "--fork", "sh", "-c", "echo r; read line"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.read(1)
        (first,) = procfs.children_of(process.pid)
        assert procfs.namespace_pids(first) == [first, 1]
        assert procfs.innermost_pid(first) == 1
        assert procfs.innermost_pid(first, first) == 1
        assert process.stdin is not None
        process.stdin.write(b"\n")
        process.stdin.flush()


def test_a_number_that_is_used_again_is_another_process():
    stat = procfs.read_stat(os.getpid())
    assert stat is not None
    assert procfs.is_same_process(os.getpid(), stat.start_ticks)
    assert not procfs.is_same_process(os.getpid(), stat.start_ticks + 1)


def test_kernel_threads_are_told_apart():
    kthreadd = procfs.read_stat(2)
    if kthreadd is None or kthreadd.comm != "kthreadd":
        pytest.skip("no kernel threads are visible in this PID namespace")
    assert kthreadd.kernel_thread


def test_all_threads_are_found():
    stop = threading.Event()
    threads = [threading.Thread(target=stop.wait) for _ in range(3)]
    for thread in threads:
        thread.start()
    found = procfs.threads_of(os.getpid())
    stop.set()
    for thread in threads:
        thread.join()
    assert {os.getpid(), *(thread.native_id for thread in threads)} <= set(found)


def test_threads_begin_with_the_leader(monkeypatch):
    monkeypatch.setattr(procfs.os, "listdir", lambda _path: ["32767", "301", "302"])
    assert procfs.threads_of(32767) == [32767, 301, 302]


def test_children_are_found_whichever_thread_forked_them():
    code = """
import os, threading, sys
def fork():
    if os.fork() == 0:
        sys.stdin.readline(); os._exit(0)
    ready.set(); stop.wait()
ready, stop = threading.Event(), threading.Event()
thread = threading.Thread(target=fork); thread.start(); ready.wait()
print("ready", flush=True); sys.stdin.read(); stop.set(); thread.join()
"""
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        children = procfs.children_of(process.pid)
        assert len(children) == 1
        assert procfs.tree_of(process.pid) == [process.pid, *children]
        assert procfs.tree_of(os.getpid())[0] == os.getpid()
        assert {process.pid, *children} <= set(procfs.tree_of(os.getpid()))


def test_a_status_field_that_is_absent_is_none():
    assert procfs.status_field(os.getpid(), "Nonsense") is None
    assert procfs.status_field(os.getpid(), "Tgid") == str(os.getpid())


def test_the_vdso_is_where_the_mappings_say_and_no_file_can_pretend_to_be_it(tmp_path: Path) -> None:
    like = tmp_path / "x [vdso]"
    like.write_bytes(bytes(4096))
    with like.open("rb") as file, mmap.mmap(file.fileno(), 4096, prot=mmap.PROT_READ):
        known = next(one for one in procfs.read_maps(os.getpid()) if one.path == "[vdso]")
        assert procfs.vdso_of(os.getpid()) == (known.start, known.end)
    assert procfs.vdso_of(2) is None  # a kernel thread
    assert procfs.vdso_of(2**22 + 5) is None


def test_mappings_come_in_order_with_their_paths():
    maps = list(procfs.read_maps(os.getpid()))
    assert [one.start for one in maps] == sorted(one.start for one in maps)
    assert all(one.start < one.end and len(one.permissions) == 4 for one in maps)
    assert any(one.path == "[vdso]" for one in maps)
    assert any(one.path == "" for one in maps)
    assert any(one.path.endswith(".so.6") for one in maps)


@pytest.mark.parametrize("name", ["a b", "  c", "(deleted)"])
def test_a_mapped_file_of_any_name_is_shown(tmp_path, name):
    import mmap

    path = tmp_path / name
    path.write_bytes(b"x" * 4096)
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 4096):
        assert any(
            one.path == str(path) and one.permissions == "rw-s" for one in procfs.read_maps(os.getpid())
        )
