"""A program that holds one thing of each kind that a process can hold, and tells on request whether it still has it.

    kinds.py PORT DIRECTORY        GET /NAME answers "ok", or what is wrong

Each kind is a generator: up to its ``yield`` it sets the thing up, after it, it checks it and uses it once more. Kinds
that change the whole process run in a child of their own (``@in_child``). Standard library only.
"""

from __future__ import annotations

import ctypes
import fcntl
import inspect
import mmap
import os
import resource
import select
import signal
import socket
import struct
import sys
import time
import traceback
from collections.abc import Callable, Generator
from http.server import BaseHTTPRequestHandler, HTTPServer
from multiprocessing import shared_memory
from pathlib import Path

PORT, TOP = int(sys.argv[1]), Path(sys.argv[2])
RUN = Path("/run") / TOP.name
libc = ctypes.CDLL(None, use_errno=True)
Kind = Generator[None, None, None]
KINDS: dict[str, Callable[[], Kind]] = {}
WITHIN = 5.0  # [s]


def kind(make: Callable[[], Kind]) -> Callable[[], Kind]:
    KINDS[make.__name__] = make
    return make


def in_child(make: Callable[[], Kind]) -> Callable[[], Kind]:
    """Set up and check in a child, which answers over a socketpair."""

    def run() -> Kind:
        ours, theirs = socket.socketpair()
        pid = os.fork()
        if pid == 0:
            ours.close()
            life = make()
            next(life)
            theirs.send(b"ready")
            theirs.recv(1)
            theirs.send((finish(life) + "\n").encode())
            os._exit(0)
        theirs.close()
        assert ours.recv(5) == b"ready"
        yield
        ours.send(b"?")
        answer = ours.recv(65536).decode().strip()
        assert answer == "ok", answer

    run.__name__ = make.__name__
    KINDS[make.__name__] = run
    return run


def finish(life: Kind) -> str:
    try:
        next(life, None)
    except BaseException:
        return traceback.format_exc()
    return "ok"


def check(call: int) -> int:
    if call < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return call


def readable(descriptor: int) -> bool:
    return bool(select.select([descriptor], [], [], WITHIN)[0])


# -- descriptors without a name --------------------------------------------------------------------------------------


@kind
def eventfd() -> Kind:
    number = os.eventfd(7)
    yield
    assert os.eventfd_read(number) == 7
    os.eventfd_write(number, 2)
    assert os.eventfd_read(number) == 2


@kind
def timerfd() -> Kind:
    number = check(libc.timerfd_create(time.CLOCK_MONOTONIC, 0))
    check(libc.timerfd_settime(number, 0, struct.pack("4q", 0, 10_000_000, 0, 10_000_000), None))
    far = check(libc.timerfd_create(time.CLOCK_MONOTONIC, 0))
    check(libc.timerfd_settime(far, 0, struct.pack("4q", 0, 0, 3600, 0), None))
    yield
    assert readable(number) and struct.unpack("Q", os.read(number, 8))[0] > 0
    left = ctypes.create_string_buffer(32)
    check(libc.timerfd_gettime(far, left))
    assert 3500 < struct.unpack("4q", left.raw)[2] < 3600


@in_child
def signalfd() -> Kind:
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
    mask = struct.pack("Q", 1 << (signal.SIGUSR1 - 1))
    number = check(libc.signalfd(-1, mask, 0))
    os.kill(os.getpid(), signal.SIGUSR1)
    yield
    assert readable(number) and struct.unpack_from("I", os.read(number, 128))[0] == signal.SIGUSR1


@kind
def epoll() -> Kind:
    reading, writing = os.pipe()
    poll = select.epoll()
    poll.register(reading, select.EPOLLIN | select.EPOLLET)
    os.write(writing, b"x")
    yield
    assert (reading, select.EPOLLIN) in poll.poll(WITHIN)
    assert os.read(reading, 2) == b"x" and poll.poll(0) == []
    os.write(writing, b"y")
    assert poll.poll(WITHIN)


@kind
def inotify_on_a_directory() -> Kind:
    watched = TOP / "watched"
    watched.mkdir()
    yield from _inotify(watched, watched / "new")


@kind
def inotify_on_a_file_of_the_host() -> Kind:
    yield from _inotify(TOP / "of-the-host", TOP / "of-the-host")


@kind
def inotify_in_run() -> Kind:
    watched = RUN / "watched"
    watched.mkdir(parents=True)
    yield from _inotify(watched, watched / "new")


def _inotify(watched: Path, touched: Path) -> Kind:
    number = check(libc.inotify_init1(0))
    check(libc.inotify_add_watch(number, bytes(watched), 0x00000002 | 0x00000100))  # IN_MODIFY | IN_CREATE
    yield
    touched.write_text("something else\n")
    assert readable(number)
    assert len(os.read(number, 4096)) >= 16


@kind
def memfd() -> Kind:
    number = os.memfd_create("kinds", os.MFD_ALLOW_SEALING)
    os.write(number, b"kept")
    fcntl.fcntl(number, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
    area = mmap.mmap(number, 4)
    yield
    assert os.pread(number, 10, 0) == b"kept" and area[:] == b"kept"
    assert fcntl.fcntl(number, fcntl.F_GET_SEALS) == fcntl.F_SEAL_SHRINK
    os.pwrite(number, b"K", 0)
    assert area[:1] == b"K"


@kind
def pipe_with_data() -> Kind:
    reading, writing = os.pipe()
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, 1 << 18)
    os.write(writing, b"x" * 100_000)
    yield
    assert fcntl.fcntl(writing, fcntl.F_GETPIPE_SZ) == 1 << 18
    assert len(os.read(reading, 200_000)) == 100_000


@kind
def pidfd() -> Kind:
    pid = os.fork()
    if pid == 0:
        signal.pause()
    number = os.pidfd_open(pid)
    yield
    signal.pidfd_send_signal(number, signal.SIGTERM)
    assert readable(number)
    assert os.waitpid(pid, 0)[1] == signal.SIGTERM


@kind
def many_descriptors() -> Kind:
    numbers = [os.open("/dev/null", os.O_RDONLY) for _ in range(300)]
    shared = os.dup(numbers[0])
    yield
    assert all(os.fstat(number).st_rdev == os.makedev(1, 3) for number in [*numbers, shared])
    for number in [*numbers, shared]:
        os.close(number)


# -- memory and processes --------------------------------------------------------------------------------------------


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
    os.nice(3)
    os.umask(0o027)
    libc.prctl(15, b"renamed", 0, 0, 0)
    os.sched_setaffinity(0, {0})
    yield
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (512, 1024)
    assert resource.getrlimit(resource.RLIMIT_CORE) == (0, 0)
    assert os.nice(0) == 3 and os.umask(0) == 0o027
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


def wait_until(true: Callable[[], bool]) -> None:
    until = time.monotonic() + WITHIN
    while not true():
        assert time.monotonic() < until, "it does not happen"
        time.sleep(0.001)


# -- sockets ---------------------------------------------------------------------------------------------------------


@kind
def socketpair_with_data() -> Kind:
    one, other = socket.socketpair()
    one.send(b"to other")
    other.send(b"to one")
    yield
    assert other.recv(99) == b"to other" and one.recv(99) == b"to one"
    one.send(b"more")
    assert other.recv(99) == b"more"


@kind
def unix_datagrams() -> Kind:
    one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    one.send(b"a")
    one.send(b"bc")
    yield
    assert (other.recv(9), other.recv(9)) == (b"a", b"bc")


@kind
def unix_socket_in_tmp() -> Kind:
    yield from _listening(str(TOP / "listening"))


@kind
def unix_socket_in_run() -> Kind:
    RUN.mkdir(exist_ok=True)
    yield from _listening(str(RUN / "listening"))


@kind
def unix_socket_abstract() -> Kind:
    yield from _listening(f"\0{TOP.name}")


def _listening(name: str) -> Kind:
    """A listening socket with one connection that was accepted and data under way."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(name)
    listener.listen()
    client = socket.socket(socket.AF_UNIX)
    client.connect(name)
    served, _ = listener.accept()
    client.send(b"old")
    yield
    assert served.recv(9) == b"old"
    served.send(b"back")
    assert client.recv(9) == b"back"
    late = socket.socket(socket.AF_UNIX)
    late.connect(name)
    late.send(b"new")
    assert listener.accept()[0].recv(9) == b"new"


@kind
def udp() -> Kind:
    receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    receiver.bind(("127.0.0.1", 0))
    sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sender.connect(receiver.getsockname())
    yield
    sender.send(b"x")
    assert readable(receiver.fileno()) and receiver.recvfrom(9) == (b"x", sender.getsockname())


@kind
def tcp_with_both_ends_inside() -> Kind:
    yield from _tcp_pair(socket.AF_INET, "127.0.0.1")


@kind
def tcp6_with_both_ends_inside() -> Kind:
    yield from _tcp_pair(socket.AF_INET6, "::1")


def _tcp_pair(family: int, address: str) -> Kind:
    listener = socket.create_server((address, 0), family=family)
    client = socket.create_connection(listener.getsockname()[:2])
    served, _ = listener.accept()
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    client.send(b"unread by the server")
    served.send(b"unread by the client")
    listener.close()
    yield
    assert served.recv(99) == b"unread by the server" and client.recv(99) == b"unread by the client"
    client.send(b"more")
    assert readable(served.fileno()) and served.recv(99) == b"more"
    assert client.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1


@kind
def tcp_closed_by_the_other_side() -> Kind:
    listener = socket.create_server(("127.0.0.1", 0))
    client = socket.create_connection(listener.getsockname())
    served, _ = listener.accept()
    client.send(b"last words")
    client.close()
    wait_until(lambda: served.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1) == b"\x08")  # CLOSE_WAIT
    yield
    assert served.recv(99) == b"last words" and served.recv(99) == b""
    served.close()


@kind
def tcp_not_yet_accepted() -> Kind:
    """A connection in the backlog; it may be gone in a branch, but the listener serves."""
    listener = socket.create_server(("127.0.0.1", 0))
    early = socket.create_connection(listener.getsockname())
    yield
    late = socket.create_connection(listener.getsockname())
    late.send(b"x")
    listener.settimeout(WITHIN)
    while True:
        served = listener.accept()[0]
        if served.getpeername() == late.getsockname():
            assert served.recv(9) == b"x"
            early.close()
            return


@kind
def netlink() -> Kind:
    channel = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
    channel.bind((0, 0))
    yield
    assert channel.getsockname()[0] != 0


# -- files -----------------------------------------------------------------------------------------------------------


@kind
def open_file_at_an_offset() -> Kind:
    path = TOP / "offset"
    path.write_bytes(b"0123456789")
    file = path.open("rb", buffering=0)
    file.read(4)
    twin = os.dup(file.fileno())
    yield
    assert os.read(twin, 1) == b"4" and file.read(1) == b"5"


@kind
def appended_file() -> Kind:
    path = TOP / "appended"
    file = path.open("a", buffering=1)
    file.write("one\n")
    yield
    file.write("two\n")
    assert path.read_text() == "one\ntwo\n"


@kind
def mapped_file() -> Kind:
    path = TOP / "mapped"
    path.write_bytes(bytes(8192))
    with path.open("r+b") as file:
        area = mmap.mmap(file.fileno(), 8192)
    area[:4] = b"kept"
    yield
    assert area[:4] == b"kept" and path.read_bytes()[:4] == b"kept"
    area[:4] = b"more"
    assert path.read_bytes()[:4] == b"more"


@kind
def deleted_file() -> Kind:
    path = TOP / "deleted"
    file = path.open("w+b", buffering=0)
    file.write(b"kept" * 100_000)
    path.unlink()
    yield
    assert os.fstat(file.fileno()).st_nlink == 0
    assert os.pread(file.fileno(), 1 << 20, 0) == b"kept" * 100_000
    assert not path.exists()


@kind
def deleted_file_with_another_name() -> Kind:
    path, other = TOP / "first-name", TOP / "second-name"
    file = path.open("w+b", buffering=0)
    file.write(b"kept")
    other.hardlink_to(path)
    path.unlink()
    yield
    assert os.pread(file.fileno(), 99, 0) == b"kept" == other.read_bytes()
    file.write(b" and more")
    assert not path.exists() and not list(TOP.glob("link_remap*"))


@kind
def file_renamed_over() -> Kind:
    path = TOP / "renamed-over"
    path.write_text("old")
    file = path.open("rb", buffering=0)
    fresh = TOP / "fresh"
    fresh.write_text("new")
    fresh.rename(path)
    yield
    assert file.read(9) == b"old" and path.read_text() == "new"


@kind
def open_file_renamed() -> Kind:
    path = TOP / "before"
    file = path.open("w+", buffering=1)
    file.write("a\n")
    path.rename(TOP / "after")
    yield
    file.write("b\n")
    assert (TOP / "after").read_text() == "a\nb\n"


@kind
def file_without_a_name() -> Kind:
    number = os.open(TOP, os.O_TMPFILE | os.O_RDWR, 0o600)
    os.write(number, b"kept")
    yield
    assert os.pread(number, 9, 0) == b"kept"


@in_child
def deleted_working_directory() -> Kind:
    place = TOP / "place"
    place.mkdir()
    os.chdir(place)
    place.rmdir()
    yield
    assert os.stat(".").st_nlink == 0 or not place.exists()


@in_child
def working_directory_and_root() -> Kind:
    place = TOP / "new-root"
    (place / "inner").mkdir(parents=True)
    os.chroot(place)
    os.chdir("/inner")
    yield
    assert str(Path.cwd()) == "/inner" and os.listdir("/") == ["inner"]


@kind
def whiteout() -> Kind:
    """The test made these on the host; here they are deleted."""
    (TOP / "host-file").unlink()
    (TOP / "host-directory" / "inner").unlink()
    (TOP / "host-directory").rmdir()
    (TOP / "host-directory").mkdir()
    (TOP / "host-directory" / "own").touch()
    yield
    assert not (TOP / "host-file").exists()
    assert os.listdir(TOP / "host-directory") == ["own"]


@kind
def metadata_of_a_host_file() -> Kind:
    path = TOP / "host-metadata"
    path.chmod(0o604)
    os.chown(path, 1234, 4321)
    os.setxattr(path, "user.mine", b"yes")
    os.utime(path, ns=(1, 2_000_000_003))
    yield
    facts = path.stat()
    assert (facts.st_mode & 0o7777, facts.st_uid, facts.st_gid) == (0o604, 1234, 4321)
    assert facts.st_mtime_ns == 2_000_000_003 and os.getxattr(path, "user.mine") == b"yes"


@kind
def symbolic_link() -> Kind:
    path = TOP / "link"
    path.symlink_to("nowhere/at/all")
    yield
    assert os.readlink(path) == "nowhere/at/all"


@kind
def fifo_with_data() -> Kind:
    path = TOP / "fifo"
    os.mkfifo(path)
    number = os.open(path, os.O_RDWR)
    os.write(number, b"kept")
    yield
    assert os.read(number, 9) == b"kept"
    writing = os.open(path, os.O_WRONLY)
    os.write(writing, b"more")
    assert os.read(number, 9) == b"more"


@kind
def fifo_and_files_in_run() -> Kind:
    RUN.mkdir(exist_ok=True)
    os.mkfifo(RUN / "fifo")
    number = os.open(RUN / "fifo", os.O_RDWR)
    os.write(number, b"kept")
    (RUN / "service.pid").write_text("1\n")
    (RUN / "link").symlink_to("service.pid")
    large = (RUN / "large").open("w+b", buffering=0)
    large.write(b"x" * (3 << 20))
    yield
    assert os.read(number, 9) == b"kept"
    assert (RUN / "link").read_text() == "1\n"
    assert len(os.pread(large.fileno(), 4 << 20, 0)) == 3 << 20


@kind
def flock_held() -> Kind:
    file = (TOP / "flocked").open("w")
    fcntl.flock(file, fcntl.LOCK_EX)
    yield
    assert _is_refused(lambda: fcntl.flock((TOP / "flocked").open("w"), fcntl.LOCK_EX | fcntl.LOCK_NB))
    fcntl.flock(file, fcntl.LOCK_UN)
    fcntl.flock((TOP / "flocked").open("w"), fcntl.LOCK_EX | fcntl.LOCK_NB)


@kind
def record_lock_held() -> Kind:
    file = (TOP / "record-locked").open("w+b", buffering=0)
    file.write(bytes(100))
    fcntl.lockf(file, fcntl.LOCK_EX, 10, 20)
    yield
    pid = os.fork()
    if pid == 0:
        other = os.open(TOP / "record-locked", os.O_RDWR)
        fcntl.lockf(other, fcntl.LOCK_EX | fcntl.LOCK_NB, 10, 40)  # beside the lock
        os._exit(0 if _is_refused(lambda: fcntl.lockf(other, fcntl.LOCK_EX | fcntl.LOCK_NB, 10, 25)) else 1)
    assert os.waitpid(pid, 0)[1] == 0


@kind
def flock_held_on_a_file_of_the_host() -> Kind:
    """Not written to, so it lies below the overlay in the original and in the branch alike."""
    file = (TOP / "host-locked").open("r")
    fcntl.flock(file, fcntl.LOCK_EX)
    yield
    assert _is_refused(lambda: fcntl.flock((TOP / "host-locked").open("r"), fcntl.LOCK_EX | fcntl.LOCK_NB))


def _is_refused(lock: Callable[[], object]) -> bool:
    try:
        lock()
    except BlockingIOError:
        return True
    return False


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        name = self.path.strip("/")
        answer = (finish(LIVES[name]) if name else "set up").encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: object) -> None:
        pass


if __name__ == "__main__":
    wanted = sys.argv[3:] or list(KINDS)
    LIVES = {}
    for _name in wanted:
        LIVES[_name] = KINDS[_name]()
        assert inspect.isgenerator(LIVES[_name])
        next(LIVES[_name])
    HTTPServer(("127.0.0.1", PORT), Handler).serve_forever()
