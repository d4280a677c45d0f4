"""What is read of a live process: this one's child, which holds a few things."""

from __future__ import annotations

import os
import select
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from relive.check.reading import read_tree
from relive.check.snapshot import Snapshot
from relive.config import Settings
from relive.errors import ProcessGone, TargetUndumpable
from relive.model.commit import TargetKind

PROGRAM = """
import os, select, socket, sys, threading, time
listening = socket.create_server(("127.0.0.1", 0))
accepted = socket.create_connection(listening.getsockname())
six = socket.create_server(("::1", 0), family=socket.AF_INET6)
pair = socket.socketpair()
epoll = select.epoll(); epoll.register(pair[0])
link = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
data = open(sys.argv[1], "w"); data.write("x" * 1000); data.flush()
big = open(sys.argv[1] + ".large", "wb"); big.truncate(80 << 20)
threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
memory = bytearray(os.urandom(8 << 20))
print(listening.getsockname()[1]); sys.stdout.flush(); sys.stdin.read()
"""


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Snapshot, int, Path]]:
    """(what was read, its port, its file)"""
    path = tmp_path_factory.mktemp("seen") / "data"
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None and child.stdin is not None
        port = int(child.stdout.readline())
        yield (
            read_tree(child.pid, TargetKind.PROCESS, Settings(home=path.parent, base_file_limit=79 << 20)),
            port,
            path,
        )
        child.stdin.close()


def test_the_process_itself(seen: tuple[Snapshot, int, Path]) -> None:
    root = seen[0].root
    assert root.threads == 2 and root.tracer == 0 and root.user == (0, 0, 0) and root.state in "SR"
    assert root.memory.private > 8 << 20 and root.memory.backed > 0
    assert root.spaces["net"] == os.stat("/proc/self/ns/net").st_ino
    assert [one.number for one in root.bound] == [-1, -1, -1]
    assert {one.mount for one in root.bound} <= seen[0].mounts.keys()


def test_its_sockets(seen: tuple[Snapshot, int, Path]) -> None:
    snapshot, port, _ = seen
    protocols = sorted(held.protocol for _, held in snapshot.opened() if held.is_socket)
    assert protocols == ["NETLINK", "TCP", "TCP", "TCPv6", "UNIX-STREAM", "UNIX-STREAM"]
    own = [snapshot.connections[inode] for inode in snapshot.sockets & snapshot.connections.keys()]
    assert sorted((one.local[0], one.listens) for one in own) == [
        ("127.0.0.1", False),
        ("127.0.0.1", True),
        ("::1", True),
    ]
    assert ("127.0.0.1", port) in {one.local for one in own}
    ends = [snapshot.unix[inode] for inode in snapshot.sockets & snapshot.unix.keys()]
    assert {one.peer for one in ends} == {one.inode for one in ends}
    assert {one.kind for one in ends} == {socket.SOCK_STREAM} and snapshot.owners == {}


def test_its_files(seen: tuple[Snapshot, int, Path]) -> None:
    snapshot, _, path = seen
    (held,) = [one for _, one in snapshot.opened() if one.target == str(path)]
    assert held.size == 1000 and held.is_writable and held.mount in snapshot.mounts
    assert [one.path for one in snapshot.data] == [f"{path}.large"]
    assert not any(one.closed for _, one in snapshot.opened())


def test_another_process_reads_this_one() -> None:
    """No tracer is seen while it is read; and an epoll that waits for what was closed is found out."""
    epoll = select.epoll()
    reading, writing = os.pipe()
    epoll.register(reading)
    child = os.fork()
    if child == 0:
        os.read(reading, 1)  # keeps the end open that is closed here
        os._exit(0)
    os.close(reading)
    try:
        asker = subprocess.run(
            [sys.executable, "-c", _ASK, str(os.getpid())], capture_output=True, text=True, check=True
        )
        assert asker.stdout.split() == [str(reading), "0"]
    finally:
        os.write(writing, b"x")
        os.waitpid(child, 0)
        os.close(writing)
        epoll.close()


# Not below the tree that is read, or it would be refused.
_ASK = """
import sys
from relive.check import reading
found = reading._read_process(int(sys.argv[1]))
print(*[number for held in found.descriptors for number in held.closed], found.tracer)
"""


def test_what_has_no_state_is_refused(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path)
    with pytest.raises(ProcessGone):
        read_tree(4194305, TargetKind.PROCESS, settings)
    for pid in (1, os.getpid(), 2):
        if Path(f"/proc/{pid}").exists():
            with pytest.raises(TargetUndumpable):
                read_tree(pid, TargetKind.PROCESS, settings)
    with subprocess.Popen(["true"]) as ended:
        os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
        with pytest.raises(TargetUndumpable):
            read_tree(ended.pid, TargetKind.PROCESS, settings)
