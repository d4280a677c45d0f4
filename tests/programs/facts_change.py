"""Does what it is told by lines on standard input, and says when it is done.

Each word changes one thing that a commit tells of a process. Started in an empty directory; with "connection": of a connection;
with "memory": of its memory.
"""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
import resource
import select
import signal
import socket
import struct
import sys
import termios
import threading
from collections.abc import Callable
from pathlib import Path

libc = ctypes.CDLL(None, use_errno=True)
libc.signal.argtypes = (ctypes.c_int, ctypes.c_void_p)
kept: list[object] = []
PR_SET_SECUREBITS, PR_SET_THP_DISABLE, PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS = 28, 41, 24, 38
SET_ROBUST_LIST, SET_TID_ADDRESS, MEMBARRIER, TIMER_CREATE = 273, 218, 324, 222
F_SETSIG, F_SETPIPE_SZ = 10, 1031
UNSHARE, CLONE_FS = 272, 0x200


def call(number: int, *words: object) -> None:
    if libc.syscall(number, *words) < 0:
        raise OSError(ctypes.get_errno(), str(number))


def prctl(*words: int) -> None:
    if libc.prctl(*(ctypes.c_ulong(word) for word in (*words, 0, 0, 0, 0)[:5])):
        raise OSError(ctypes.get_errno(), "prctl")


def room(size: int) -> ctypes.Array[ctypes.c_char]:
    found = ctypes.create_string_buffer(size)
    kept.append(found)
    return found


def in_thread(do: Callable[[], None]) -> None:
    """What one thread does to itself, in one that stays."""
    done, failed = threading.Event(), []

    def run() -> None:
        try:
            do()
        except OSError as error:
            failed.append(error)
        done.set()
        threading.Event().wait()

    threading.Thread(target=run, daemon=True).start()
    done.wait()
    if failed:
        raise failed[0]


def act(number: int, flags: int, mask: int) -> None:
    """By the call itself, which can change one member of an action only."""
    before = (ctypes.c_uint64 * 4)()
    call(13, number, None, before, 8)
    before[1] |= flags
    before[3] |= mask
    call(13, number, before, None, 8)


def alternate_stack() -> None:
    libc.sigaltstack((ctypes.c_uint64 * 3)(ctypes.addressof(room(65536)), 0, 65536), None)


def child() -> None:
    pid = os.fork()
    if not pid:
        signal.pause()
        os._exit(0)
    kept.append(pid)


def end_child() -> None:
    pid = next(one for one in kept if isinstance(one, int))
    kept.remove(pid)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def timer() -> None:
    sigevent, number = room(64), room(8)
    struct.pack_into("<qii", sigevent, 0, 0, 0, 1)  # SIGEV_NONE
    call(TIMER_CREATE, 1, sigevent, number)


def replace(number: int, path: str, flags: int) -> None:
    found = os.open(path, flags | os.O_CLOEXEC)
    os.dup2(found, number, inheritable=False)
    os.close(found)


def swap() -> None:
    """The same two files, each open where the other was."""
    one, other = os.dup(file), os.dup(second)
    os.dup2(other, file, inheritable=False)
    os.dup2(one, second, inheritable=False)
    os.close(one)
    os.close(other)


def option(of: socket.socket, level: int, number: int, value: int | bytes) -> None:
    of.setsockopt(level, number, value)


def map_file() -> None:
    Path("mapped").write_bytes(bytes(64))
    with Path("mapped").open("rb") as opened:
        kept.append(mmap.mmap(opened.fileno(), 0, mmap.MAP_PRIVATE, mmap.PROT_READ))


def connect() -> socket.socket:
    """A connection to ourselves; the accepted end is kept under the number of the one before, if there was one."""
    with socket.create_server(("127.0.0.1", 0)) as door:
        other = socket.create_connection(door.getsockname())
        taken, _ = door.accept()
    os.dup2(taken.fileno(), one_end.fileno(), inheritable=False)
    taken.close()
    return other


def settle() -> None:
    """Until all that our connections have sent is acknowledged, also by the end whose other was replaced (some 40 ms later)."""
    while any(unacknowledged(each) for each in (one_end, ends[-1])) or any(map(owes_an_answer, ends[1:-1])):
        pass


def owes_an_answer(of: socket.socket) -> bool:
    """Its other end, which has no descriptor any more, waits to hear that its last word has come (FIN_WAIT1)."""
    try:
        there, here = of.getpeername()[1], of.getsockname()[1]
    except OSError:  # both ends have been closed
        return False
    rows = [row.split() for row in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return any((row[1][-4:], row[2][-4:], row[3]) == (f"{there:04X}", f"{here:04X}", "04") for row in rows)


def unacknowledged(of: socket.socket) -> int:
    waiting = bytearray(4)
    fcntl.ioctl(of, termios.TIOCOUTQ, waiting)
    return int.from_bytes(waiting, sys.byteorder)


def ask_and_answer() -> None:
    for _ in range(20):
        ends[-1].send(b"what is it?" * 100)
        one_end.send(one_end.recv(2000)[:7])
        ends[-1].recv(2000)


def tcp(number: int, value: int) -> Callable[[], object]:
    return lambda: option(one_end, socket.IPPROTO_TCP, number, value)


def general(number: int, value: int | bytes) -> Callable[[], object]:
    return lambda: option(one_end, socket.SOL_SOCKET, number, value)


CONNECTION: dict[str, Callable[[], object]] = {
    "connected": lambda: ends.append(connect()),
    "asked and answered": ask_and_answer,
    "asked": lambda: ends[-1].send(b"asked"),
    "read in part": lambda: one_end.recv(2),
    "read": lambda: one_end.recv(100),
    "asked and answered again": ask_and_answer,
    "kept alive": general(socket.SO_KEEPALIVE, 1),
    "idle of it": tcp(socket.TCP_KEEPIDLE, 77),
    "interval of it": tcp(socket.TCP_KEEPINTVL, 7),
    "probes of it": tcp(socket.TCP_KEEPCNT, 3),
    "lingers": general(socket.SO_LINGER, struct.pack("ii", 1, 7)),
    "lingers for longer": general(socket.SO_LINGER, struct.pack("ii", 1, 9)),
    "lingers no more": general(socket.SO_LINGER, struct.pack("ii", 0, 0)),
    "goes at once": tcp(socket.TCP_NODELAY, 1),
    "corked": tcp(socket.TCP_CORK, 1),
    "not corked": tcp(socket.TCP_CORK, 0),
    "patience of it": tcp(18, 5000),  # TCP_USER_TIMEOUT
    "lingers in FIN": tcp(socket.TCP_LINGER2, 5),
    "tries": tcp(socket.TCP_SYNCNT, 3),
    "low water": general(socket.SO_RCVLOWAT, 5),
    "timeout": general(socket.SO_RCVTIMEO, struct.pack("ll", 3, 0)),
    "timeout of sending": general(socket.SO_SNDTIMEO, struct.pack("ll", 3, 0)),
    "priority of it": general(socket.SO_PRIORITY, 3),
    "mark of it": general(36, 9),
    "busy": general(46, 50),
    "stamps": general(29, 1),
    "sends in a small buffer": general(socket.SO_SNDBUF, 1 << 14),
    "reads from a small buffer": general(socket.SO_RCVBUF, 1 << 14),
    "address of others": general(socket.SO_REUSEADDR, 0),
    "service of it": lambda: option(one_end, socket.IPPROTO_IP, socket.IP_TOS, 8),
    "lifetime of it": lambda: option(one_end, socket.IPPROTO_IP, socket.IP_TTL, 8),
    "does not block": lambda: one_end.setblocking(False),
    "blocks": lambda: one_end.setblocking(True),
    "owner of it": lambda: fcntl.fcntl(one_end, fcntl.F_SETOWN, os.getpid()),
    "no owner": lambda: fcntl.fcntl(one_end, fcntl.F_SETOWN, 0),
    "signal of it": lambda: fcntl.fcntl(one_end, F_SETSIG, 34),
    "closes with exec": lambda: os.set_inheritable(one_end.fileno(), True),
    "twice": lambda: doubles.append(os.dup(one_end.fileno())),
    "once": lambda: os.close(doubles.pop()),
    "urgent": lambda: ends[-1].send(b"!", socket.MSG_OOB),
    "urgent taken": lambda: one_end.recv(1, socket.MSG_OOB),
    "after the urgent": lambda: (ends[-1].send(b"more"), one_end.recv(100)),
    "urgent inline": general(socket.SO_OOBINLINE, 1),
    "urgent again": lambda: ends[-1].send(b"!", socket.MSG_OOB),
    "urgent read": lambda: one_end.recv(10),
    "replaced": lambda: ends.append(connect()),
    "asked and answered by it": ask_and_answer,
    "filtered": lambda: option(one_end, socket.SOL_SOCKET, 26, accepting_filter()),
    "not filtered": lambda: option(one_end, socket.SOL_SOCKET, 27, 0),
    "said on": lambda: one_end.send(b"said"),
    "ended by the other": lambda: ends[-1].shutdown(socket.SHUT_WR),
    "ended": lambda: one_end.shutdown(socket.SHUT_WR),
    "replaced again": lambda: ends.append(connect()),
    "broken": lambda: (
        option(ends[-1], socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)),
        ends[-1].close(),
    ),
}


def accepting_filter() -> bytes:
    return struct.pack("HxxxxxxQ", 1, ctypes.addressof(accepting))


def come_and_go() -> None:
    """Pages of memory that are written, and given back, again and again."""
    room = mmap.mmap(-1, 64 << 12, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)

    def run() -> None:
        while True:
            room[:] = bytes(range(1, 65)) * 4096
            room.madvise(mmap.MADV_DONTNEED)

    threading.Thread(target=run, daemon=True).start()


MEMORY: dict[str, Callable[[], object]] = {
    "mapped": lambda: kept.append(mmap.mmap(-1, 1 << 16, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)),
    "advised": lambda: alone.madvise(mmap.MADV_DONTFORK),
    "pages come and go": come_and_go,
}

CHANGES: dict[str, Callable[[], object]] = {
    # of the process and its threads
    "name": lambda: prctl(15, ctypes.addressof(room(16))),
    "not dumpable": lambda: prctl(4, 0),
    "dumpable": lambda: prctl(4, 1),
    "groups": lambda: os.setgroups([1, 2, 3]),
    "other groups": lambda: os.setgroups([1, 2, 4]),
    "group": lambda: os.setresgid(0, 7, 0),
    "user": lambda: os.setresuid(0, 0, 7),
    "bounds": lambda: prctl(PR_CAPBSET_DROP, 25),
    "secure bits": lambda: prctl(PR_SET_SECUREBITS, 4),
    "no new rights": lambda: prctl(PR_SET_NO_NEW_PRIVS, 1),
    "no huge pages": lambda: prctl(PR_SET_THP_DISABLE, 1),
    "subreaper": lambda: prctl(36, 1),
    "death signal": lambda: prctl(1, 10),
    "robust list": lambda: call(SET_ROBUST_LIST, room(64), ctypes.c_size_t(24)),
    "tid address": lambda: call(SET_TID_ADDRESS, room(64)),
    "barrier": lambda: call(MEMBARRIER, 1 << 4, 0, 0),
    "catch": lambda: signal.signal(signal.SIGUSR1, lambda *_: None),
    "catch otherwise": lambda: libc.signal(signal.SIGUSR1, ctypes.cast(libc.abs, ctypes.c_void_p)),
    "flags of an action": lambda: act(signal.SIGUSR1, 0x08000000, 0),
    "mask of an action": lambda: act(signal.SIGUSR1, 0, 1 << 11),
    "ignore": lambda: signal.signal(signal.SIGUSR2, signal.SIG_IGN),
    "alternate stack": alternate_stack,
    "block": lambda: signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM}),
    "pending": lambda: os.kill(os.getpid(), signal.SIGHUP),
    "take it": lambda: signal.sigwait({signal.SIGHUP}),
    "pending of a thread": lambda: signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGHUP),
    "take that": lambda: signal.sigwait({signal.SIGHUP}),
    "interval": lambda: signal.setitimer(signal.ITIMER_REAL, 3600),
    "no interval": lambda: signal.setitimer(signal.ITIMER_REAL, 0),
    "interval of work": lambda: signal.setitimer(signal.ITIMER_PROF, 3600, 5),
    "no such": lambda: signal.setitimer(signal.ITIMER_PROF, 0),
    "umask": lambda: os.umask(0o31),
    "directory": lambda: os.chdir("deep/er"),
    "name of the directory": lambda: (
        Path("..").joinpath("..", "deep").rename(Path("..").joinpath("..", "low"))
    ),
    "directory removed": lambda: Path.cwd().rmdir(),
    "directory back": lambda: os.chdir(top),
    "break": lambda: libc.sbrk(100),
    "advice": lambda: advised.madvise(mmap.MADV_DONTFORK),
    "mapping of a file": map_file,
    "locked memory": lambda: libc.mlock(room(8192), 4096),
    "thread": lambda: in_thread(lambda: None),
    "rights of a thread": lambda: in_thread(lambda: call(119, -1, 8, -1)),  # setresgid, of itself only
    "child": child,
    "another child": child,
    "no child": end_child,
    # of descriptors
    "position": lambda: os.lseek(file, 3, os.SEEK_SET),
    "size": lambda: os.truncate("file", 1000),
    "written": lambda: os.write(file, b"more"),
    "flags": lambda: fcntl.fcntl(file, fcntl.F_SETFL, os.O_APPEND),
    "closing": lambda: os.set_inheritable(file, True),
    "locked": lambda: fcntl.flock(file, fcntl.LOCK_SH),
    "not locked": lambda: fcntl.flock(file, fcntl.LOCK_UN),
    "locked in part": lambda: fcntl.lockf(second, fcntl.LOCK_EX, 1),
    "not in part": lambda: fcntl.lockf(second, fcntl.LOCK_UN, 1),
    "owner of a pipe": lambda: fcntl.fcntl(pipe[0], fcntl.F_SETOWN, os.getpid()),
    "renamed": lambda: Path("file").rename(
        "a name that is longer than what is kept within an entry of the kernel's"
    ),
    "renamed again": lambda: Path(
        "a name that is longer than what is kept within an entry of the kernel's"
    ).rename("file"),
    "linked": lambda: os.link("file", "link"),
    "mode": lambda: Path("file").chmod(0o601),
    "swapped": swap,
    "same": lambda: os.dup2(file, second, inheritable=False),
    "not the same": lambda: replace(second, "second", os.O_RDWR),
    "opened again": lambda: replace(second, "second", os.O_RDWR),
    "opened otherwise": lambda: replace(second, "second", os.O_RDONLY),
    "device": lambda: replace(null, "/dev/zero", os.O_RDWR),
    "new": lambda: os.open("second", os.O_RDONLY),
    "unlinked": lambda: Path("second").unlink(),
    "signal of a pipe": lambda: fcntl.fcntl(pipe[0], F_SETSIG, 34),
    "size of a pipe": lambda: fcntl.fcntl(pipe[0], F_SETPIPE_SZ, 1 << 14),
    "in a pipe": lambda: os.write(pipe[1], b"abc"),
    "more in a pipe": lambda: os.write(pipe[1], b"d"),
    "out of the pipe": lambda: os.read(pipe[0], 4),
    "one end": lambda: os.close(pipe[0]),
    "waits": lambda: kept.append(socket.create_connection(listener.getsockname())),
    "accepted": lambda: kept.append(listener.accept()),
    "keep alive": lambda: option(listener, socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    "linger": lambda: option(listener, socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 7)),
    "mark": lambda: option(listener, socket.SOL_SOCKET, 36, 9),
    "priority": lambda: option(listener, socket.SOL_SOCKET, 12, 3),
    "receive buffer": lambda: option(listener, socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 15),
    "filter": lambda: option(listener, socket.SOL_SOCKET, 26, accepting_filter()),
    "no delay": lambda: option(listener, socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
    "defer": lambda: option(listener, socket.IPPROTO_TCP, socket.TCP_DEFER_ACCEPT, 5),
    "idle": lambda: option(listener, socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 77),
    "tos": lambda: option(listener, socket.IPPROTO_IP, socket.IP_TOS, 8),
    "backlog": lambda: listener.listen(77),
    "local backlog": lambda: local.listen(5),
    "said": lambda: pair[0].send(b"said"),
    "heard": lambda: pair[1].recv(100),
    "passes rights": lambda: option(pair[0], socket.SOL_SOCKET, socket.SO_PASSCRED, 1),
    "half closed": lambda: pair[0].shutdown(socket.SHUT_WR),
    "datagram": lambda: datagrams.sendto(b"one", datagrams.getsockname()),
    "taken": lambda: datagrams.recv(100),
    "broadcasts": lambda: option(datagrams, socket.SOL_SOCKET, socket.SO_BROADCAST, 1),
    "watches": lambda: epoll.register(pair[1], 1),
    "counted": lambda: os.eventfd_write(event, 3),
    "limit": lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (512, 1024)),
    "timer": timer,
    # last, as they make it slower
    "nice": lambda: os.nice(1),
    "policy": lambda: os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0)),
    "reset on fork": lambda: os.sched_setscheduler(
        0, os.SCHED_BATCH | os.SCHED_RESET_ON_FORK, os.sched_param(0)
    ),
    "own directories of a thread": lambda: in_thread(lambda: call(UNSHARE, CLONE_FS)),
}

signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})  # in all threads
top = Path.cwd()
(top / "deep" / "er").mkdir(parents=True)
Path("file").write_bytes(bytes(64))
Path("second").write_bytes(bytes(32))
file, second = os.open("file", os.O_RDWR), os.open("second", os.O_RDWR)
null = os.open("/dev/null", os.O_RDWR)
directory = os.open("deep", os.O_RDONLY)
pipe = os.pipe()
pair = socket.socketpair()
listener = socket.create_server(("127.0.0.1", 0))
local = socket.socket(socket.AF_UNIX)
local.bind("socket")
local.listen()
datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
datagrams.bind(("127.0.0.1", 0))
event = os.eventfd(0)
epoll = select.epoll()
accepting = room(8)
struct.pack_into("HBBI", accepting, 0, 6, 0, 0, 0xFFFF)
kept.append(mmap.mmap(-1, 1 << 16, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
advised = mmap.mmap(-1, 1 << 16, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
alone = mmap.mmap(-1, 1 << 16, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, mmap.PROT_READ)  # one with no neighbour
threading.Thread(target=threading.Event().wait, daemon=True).start()
has_connection = sys.argv[1:] == ["connection"]
changes = CONNECTION if has_connection else MEMORY if sys.argv[1:] == ["memory"] else CHANGES
doubles: list[int] = []
if has_connection:
    one_end = socket.socket()
    ends = [socket.socket()]
print("ready", *changes, sep="|", flush=True)
for line in sys.stdin:
    try:
        changes[line.strip()]()
        if has_connection and ends[-1].fileno() >= 0:
            settle()
    except OSError as error:
        print("failed", error, flush=True)
    else:
        print("done", flush=True)
