"""Memory, child processes, identity, signals and timers."""

from __future__ import annotations

import ctypes
import mmap
import os
import resource
import signal
import socket
import struct
import time
from multiprocessing import shared_memory
from pathlib import Path

from holding import Kind, check, in_child, kind, libc, wait_until


@kind
def anonymous_memory_shared_with_a_child() -> Kind:
    area = mmap.mmap(-1, 8192)
    area[:4] = b"mine"
    ours, theirs = socket.socketpair()
    if os.fork() == 0:
        theirs.recv(1)
        area[4096:4100] = area[:4].upper()
        theirs.send(b"!")
        os._exit(0)
    yield
    ours.send(b"?")
    assert ours.recv(1) == b"!" and area[4096:4100] == b"MINE"
    os.wait()


@kind
def named_memory() -> Kind:
    block = shared_memory.SharedMemory(create=True, size=4096)
    block.buf[:4] = b"kept"
    yield
    again = shared_memory.SharedMemory(block.name)
    assert bytes(again.buf[:4]) == b"kept"
    block.buf[0] = ord("K")
    assert bytes(again.buf[:4]) == b"Kept"
    again.close()


@in_child
def zombie_child() -> Kind:
    pid = os.fork()
    if pid == 0:
        os._exit(3)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    yield
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 3


@in_child
def stopped_child() -> Kind:
    pid = os.fork()
    if pid == 0:
        signal.pause()
    os.kill(pid, signal.SIGSTOP)
    os.waitid(os.P_PID, pid, os.WSTOPPED | os.WNOWAIT)
    yield
    state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    assert state in "Tt", state  # "t" while something watches it for signals
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


@in_child
def changed_identity() -> Kind:
    os.setgroups([100])
    os.setresgid(65534, 65534, 65534)
    os.setresuid(65534, 65534, 65534)
    yield
    assert os.getresuid() == (65534,) * 3 and os.getresgid() == (65534,) * 3 and os.getgroups() == [100]


@in_child
def limits_names_and_masks() -> Kind:
    resource.setrlimit(resource.RLIMIT_NOFILE, (512, 1024))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    nice = os.nice(3)  # beside that of whoever runs the suite
    os.umask(0o027)
    libc.prctl(15, b"renamed", 0, 0, 0)
    os.sched_setaffinity(0, {0})
    yield
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (512, 1024)
    assert resource.getrlimit(resource.RLIMIT_CORE) == (0, 0)
    assert os.nice(0) == nice and os.umask(0) == 0o027
    assert Path("/proc/self/comm").read_text() == "renamed\n"


@in_child
def signals_blocked_and_pending() -> Kind:
    seen: list[int] = []
    signal.signal(signal.SIGUSR2, lambda number, _: seen.append(number))
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2])
    os.kill(os.getpid(), signal.SIGUSR2)
    yield
    assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN and not seen
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGUSR2])
    assert seen == [signal.SIGUSR2]


@in_child
def interval_timer() -> Kind:
    ticks: list[int] = []
    signal.signal(signal.SIGALRM, lambda *_: ticks.append(1))
    signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)
    yield
    yet = len(ticks)
    wait_until(lambda: len(ticks) > yet + 2)


@in_child
def posix_timer() -> Kind:
    ticks: list[int] = []
    signal.signal(signal.SIGRTMIN, lambda *_: ticks.append(1))
    event = struct.pack("QiiQQ", 5, signal.SIGRTMIN, 0, 0, 0) + bytes(32)  # sigev_value, signo, SIGEV_SIGNAL
    timer = ctypes.c_void_p()
    check(libc.timer_create(time.CLOCK_MONOTONIC, event, ctypes.byref(timer)))
    check(libc.timer_settime(timer, 0, struct.pack("4q", 0, 10_000_000, 0, 10_000_000), None))
    yield
    yet = len(ticks)
    wait_until(lambda: len(ticks) > yet + 2)
