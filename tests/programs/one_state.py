"""Holds one kind of state, says "ready PID", and waits to be ended: ``one_state.py KIND [WORD...]``.

Every function whose name has no underscore in front is a kind; what it returns is kept alive.
"""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
import select
import signal
import socket
import struct
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

_libc = ctypes.CDLL(None, use_errno=True)
_BPF, _FANOTIFY_INIT, _FANOTIFY_MARK, _IO_URING_SETUP, _MEMFD_SECRET = 321, 300, 301, 425, 447
_PERF_EVENT_OPEN, _PIDFD_OPEN, _SECCOMP, _USERFAULTFD, _IO_SETUP, _MQ_OPEN = 298, 434, 317, 323, 206, 240


def _call(*words: Any) -> int:
    answer = _libc.syscall(*words)
    if answer < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return int(answer)


def _child(action: Any) -> int:
    """A child that does something and then waits for its end; ready when it is done."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        _libc.prctl(1, 9, 0, 0, 0)  # PR_SET_PDEATHSIG
        kept = [action()]
        os.close(writing)
        signal.pause()
        os._exit(len(kept))
    os.close(writing)
    os.read(reading, 1)
    os.close(reading)
    return child


def nothing() -> Any:
    return None


def ordinary() -> Any:
    """Much of what services hold, and all of it can be saved."""
    watch = _libc.inotify_init()
    _libc.inotify_add_watch(watch, b"/etc", 0x100)
    epoll = select.epoll()
    pair = socket.socketpair()
    epoll.register(pair[0])
    listening = socket.create_server(("127.0.0.1", 0))
    inside = socket.create_connection(listening.getsockname())
    named = Path(tempfile.mkdtemp(), "s")
    unix = socket.socket(socket.AF_UNIX)
    unix.bind(str(named))
    unix.listen()
    eventfd = os.eventfd(3)
    timer = _call(283, 1, 0)
    signals = _call(289, -1, struct.pack("Q", 1 << 11), 8, 0)
    memory = os.memfd_create("m")
    os.write(memory, b"x" * 9999)
    shared = mmap.mmap(-1, 1 << 16)
    pipe = os.pipe()
    os.write(pipe[1], b"left")
    thread = threading.Thread(target=signal.pause, daemon=True)
    thread.start()
    child = _child(lambda: None)
    own = _call(_PIDFD_OPEN, child, 0)
    udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    udp.bind(("127.0.0.1", 0))
    deleted = tempfile.TemporaryFile()
    deleted.write(b"y" * 99999)
    deleted.flush()
    more = [
        fanotify(), netlink_route(), packet_ring(), raw_icmp(), closed_pair(), unaccepted(), deleted_with_other_name(),
        aio(), ofd_lock(), flock(), zombie_child(), child_chroot("/proc"), mapped_zero(), path_only(), seccomp_filter(),
    ]  # fmt: skip
    zero, random = open("/dev/zero", "rb"), open("/dev/urandom", "rb")
    return locals()


def ring() -> Any:
    return _call(_IO_URING_SETUP, 4, bytes(120))


def unix_stream(path: str) -> Any:
    made = socket.socket(socket.AF_UNIX)
    made.connect(path)
    return made


def unix_datagrams(path: str) -> Any:
    made = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    made.connect(path)
    return made


def half_pair() -> Any:
    """The other end is held by a process that is no descendant."""
    return _half(socket.SOCK_STREAM)


def half_datagrams() -> Any:
    return _half(socket.SOCK_DGRAM)


def _half(kind: int) -> Any:
    ours, theirs = socket.socketpair(socket.AF_UNIX, kind)
    if os.fork() == 0:
        if os.fork() == 0:
            ours.close()
            theirs.recv(1)  # it ends with the other end
        os._exit(0)
    os.wait()
    theirs.close()
    return ours


def vsock() -> Any:
    return socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM)


def raw_icmp() -> Any:
    return socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)


def mptcp() -> Any:
    return socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262)


def packet() -> Any:
    return socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))


def packet_ring() -> Any:
    made = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x88B5))
    made.setsockopt(263, 5, struct.pack("IIII", 4096, 4, 2048, 8))
    return made, mmap.mmap(made.fileno(), 4096 * 4)


def netlink_route() -> Any:
    made = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
    made.bind((0, 0))
    return made


def netlink_unread() -> Any:
    made = netlink_route()
    made.send(struct.pack("IHHIIB3x", 20, 18, 0x301, 1, 0, 0))  # RTM_GETLINK, dump
    return made


def tcp_out(port: str) -> Any:
    return socket.create_connection(("127.0.0.1", int(port)))


def userfault() -> Any:
    return _call(_USERFAULTFD, os.O_CLOEXEC | os.O_NONBLOCK)


def perf() -> Any:
    return _call(_PERF_EVENT_OPEN, struct.pack("IIQ", 1, 112, 1) + bytes(96), 0, -1, -1, 0)


def bpf_map() -> Any:
    return _call(_BPF, 0, struct.pack("IIII", 2, 4, 4, 1) + bytes(56), 72)


def bpf_program() -> Any:
    steps = ctypes.create_string_buffer(
        struct.pack("<BBHi", 0xB7, 0, 0, 0) + struct.pack("<BBHi", 0x95, 0, 0, 0)
    )
    words = ctypes.create_string_buffer(b"GPL")
    asked = struct.pack("IIQQIIQII", 1, 2, ctypes.addressof(steps), ctypes.addressof(words), 0, 0, 0, 0, 0)
    return _call(_BPF, 5, asked + bytes(72), 120)


def fanotify() -> Any:
    made = _call(_FANOTIFY_INIT, 0, os.O_RDONLY)
    _call(_FANOTIFY_MARK, made, 1, ctypes.c_uint64(1), -100, b"/etc/passwd")
    return made


def secret_memory() -> Any:
    made = _call(_MEMFD_SECRET, 0)
    os.ftruncate(made, 4096)
    return made, mmap.mmap(made, 4096)


def sysv_memory() -> Any:
    segment = _libc.shmget(0, 1 << 20, 0o600)
    _libc.shmat.restype = ctypes.c_void_p
    place = _libc.shmat(segment, None, 0)
    _libc.shmctl(segment, 0, None)
    return place


def pidfd_outside(pid: str) -> Any:
    return os.pidfd_open(int(pid))


def full_table() -> Any:
    import resource

    resource.setrlimit(resource.RLIMIT_NOFILE, (24, 24))
    kept = []
    try:
        while True:
            kept.append(os.open("/dev/null", os.O_RDONLY))
    except OSError:
        return kept


def deleted_with_other_name() -> Any:
    place = Path(tempfile.mkdtemp(dir=os.environ.get("STATE_PLACE")))
    kept = (place / "a").open("w+")
    os.link(place / "a", place / "b")
    (place / "a").unlink()
    return kept


def large_deleted(size: str) -> Any:
    kept = tempfile.TemporaryFile(dir=os.environ.get("STATE_PLACE"))
    kept.write(b"x" * int(size))
    kept.flush()
    return kept


def device(path: str) -> Any:
    return os.open(path, os.O_RDONLY | os.O_NONBLOCK)


def mapped_zero() -> Any:
    return mmap.mmap(os.open("/dev/zero", os.O_RDWR), 4096)


def aio() -> Any:
    made = ctypes.c_ulong(0)
    _call(_IO_SETUP, 8, ctypes.byref(made))
    return made


def queue() -> Any:
    made = _call(_MQ_OPEN, b"relive-state-%d" % os.getpid(), os.O_RDWR | os.O_CREAT, 0o600, None)
    _call(241, b"relive-state-%d" % os.getpid())
    return made


def chroot(place: str) -> Any:
    os.chroot(place)
    os.chdir("/")


def child_chroot(place: str) -> Any:
    return _child(lambda: chroot(place))


def _apart(kind: int) -> Any:
    if _libc.unshare(kind) < 0:
        raise OSError(ctypes.get_errno(), "unshare")
    return kind


def own_mounts() -> Any:
    _apart(0x20000)


def child_own_mounts() -> Any:
    return _child(lambda: _apart(0x20000))


def own_network() -> Any:
    _apart(0x40000000)


def child_own_network() -> Any:
    return _child(lambda: _apart(0x40000000))


def own_ipc() -> Any:
    _apart(0x08000000)


def child_own_ipc() -> Any:
    return _child(lambda: _apart(0x08000000))


def child_own_uts() -> Any:
    return _child(lambda: _apart(0x04000000))


def own_users() -> Any:
    _apart(0x10000000)


def child_own_users() -> Any:
    return _child(lambda: _apart(0x10000000))


def own_time() -> Any:
    _apart(0x00000080)


def child_own_pids() -> Any:
    _apart(0x20000000)
    return _child(lambda: None)


def outside_file() -> Any:
    """Open on a mount of another mount namespace."""
    reading, writing = os.pipe()
    other, theirs = socket.socketpair()
    if os.fork() == 0:
        _apart(0x20000)
        _libc.mount(b"none", b"/", None, 0x44000, None)
        _libc.mount(b"t", b"/mnt", b"tmpfs", 0, None)
        made = os.open("/mnt/file", os.O_RDWR | os.O_CREAT)
        socket.send_fds(theirs, [b"x"], [made])
        os._exit(0)
    _, descriptors, _, _ = socket.recv_fds(other, 1, 1)
    os.wait()
    os.close(reading), os.close(writing), other.close(), theirs.close()
    return descriptors


def seccomp_filter() -> Any:
    return _seccomp(0)


def seccomp_listener() -> Any:
    return _seccomp(8)


def _seccomp(flags: int) -> Any:
    _libc.prctl(38, 1, 0, 0, 0)
    allow = ctypes.create_string_buffer(struct.pack("<HBBI", 0x06, 0, 0, 0x7FFF0000))
    program = ctypes.create_string_buffer(struct.pack("<H6xQ", 1, ctypes.addressof(allow)))
    return _call(_SECCOMP, 1, flags, program)


def zombie_child() -> Any:
    child = os.fork()
    if child == 0:
        os._exit(3)
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    return child


def two_users() -> Any:
    os.setresuid(-1, 65534, 0)


def other_user() -> Any:
    os.setgroups([])
    os.setresgid(65534, 65534, 65534)
    os.setresuid(65534, 65534, 65534)


def lease(path: str) -> Any:
    made = os.open(path, os.O_RDONLY)
    fcntl.fcntl(made, fcntl.F_SETLEASE, fcntl.F_RDLCK)
    return made


def flock() -> Any:
    made = tempfile.NamedTemporaryFile()
    fcntl.flock(made, fcntl.LOCK_EX)
    return made


def ofd_lock() -> Any:
    made = tempfile.NamedTemporaryFile()
    fcntl.fcntl(made, 37, struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, 0, 9, 0))
    return made


def path_only() -> Any:
    return os.open("/etc/passwd", os.O_PATH)


def memory(size: str) -> Any:
    return bytearray(os.urandom(1 << 20) * (int(size) >> 20))


def double_fork() -> Any:
    """A daemon whose session leader has ended."""
    if os.fork():
        os.wait()
        os._exit(0)
    os.setsid()
    if os.fork():
        os._exit(0)


def orphan_session() -> Any:
    """A grandchild in a session whose leader has ended, adopted by the root."""
    _libc.prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER
    reading, writing = os.pipe()
    waiting, going = os.pipe()
    child = os.fork()
    if child == 0:
        os.setsid()
        if os.fork() == 0:
            os.read(waiting, 1)
            _libc.prctl(1, 9, 0, 0, 0)  # the root's death, not the leader's, which is over
            os.close(writing)
            signal.pause()
        os._exit(0)
    os.close(writing)
    os.waitpid(child, 0)
    os.write(going, b"g")
    os.read(reading, 1)
    for descriptor in (reading, waiting, going):
        os.close(descriptor)


def closed_pair() -> Any:
    ours, theirs = socket.socketpair()
    theirs.close()
    return ours


def unaccepted() -> Any:
    """A connection of its own that it has not accepted yet, TCP and unix."""
    listening = socket.create_server(("127.0.0.1", 0))
    unix = socket.socket(socket.AF_UNIX)
    unix.bind(f"\0relive-state-{os.getpid()}")
    unix.listen()
    ours = socket.socket(socket.AF_UNIX)
    ours.connect(unix.getsockname())
    return listening, socket.create_connection(listening.getsockname()), unix, ours


def directory_gone() -> Any:
    """A deleted file with another name, whose own directory is gone too."""
    place = Path(tempfile.mkdtemp(dir=os.environ.get("STATE_PLACE")))
    (place / "in").mkdir()
    kept = (place / "in" / "a").open("w+")
    os.link(place / "in" / "a", place / "b")
    (place / "in" / "a").unlink()
    (place / "in").rmdir()
    return kept


def closed_in_epoll() -> Any:
    epoll = select.epoll()
    ours, theirs = os.pipe()
    epoll.register(ours, select.EPOLLIN)
    if os.fork() == 0:
        if os.fork() == 0:
            handle = os.pidfd_open(int(os.environ["STATE_PID"]))
            select.select([handle], [], [])
        os._exit(0)
    os.wait()
    os.close(ours)
    return epoll, theirs


def tun() -> Any:
    return os.open("/dev/net/tun", os.O_RDWR)


if __name__ == "__main__":
    os.environ["STATE_PID"] = str(os.getpid())
    held = globals()[sys.argv[1]](*sys.argv[2:])
    sys.stdout.write(f"ready {os.getpid()}\n")
    sys.stdout.flush()
    while True:
        signal.pause()
