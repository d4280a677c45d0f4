"""Rules on snapshots that were made by hand; ``tests/real/test_check.py`` holds them against real commits."""

from __future__ import annotations

import os
import socket
import stat
from dataclasses import replace
from typing import Any

import pytest

from relive.check.finding import Severity
from relive.check.rules import findings_of
from relive.check.snapshot import DataFile, HeldDescriptor, Internet, Limits, Memory, Outsider
from relive.kernel.mounts import Mount
from relive.kernel.procfs import Mapping
from relive.kernel.unixdiag import UnixSocket
from relive.model.commit import TargetKind

from .seen import FILE, ROOT, SOCKET, SPACES, blocking, file, found, process, tree


def nameless(kind: str, **fields: Any) -> HeldDescriptor:
    return HeldDescriptor(number=4, target=f"anon_inode:{kind}", mode=0o600, **fields)


def device(path: str, major: int, minor: int, kind: int = stat.S_IFCHR) -> HeldDescriptor:
    return HeldDescriptor(number=5, target=path, mode=kind | 0o666, special=os.makedev(major, minor), mount=1)


def mapped(path: str) -> dict[str, Any]:
    return {"mappings": (Mapping(0x1000, 0x2000, "rw-s", 0, path),)}


def test_a_process_with_a_file_open_meets_nothing() -> None:
    assert found(tree(file("/srv/data"))) == []


def test_a_plain_process_is_told_that_only_open_files_are_committed() -> None:
    (one,) = findings_of(tree(file("/srv/data", flags=os.O_RDWR, size=5)))
    assert (one.severity, one.code) == ("note", "files-of-plain-process") and "1 open files" in one.subject
    assert findings_of(tree(kind=TargetKind.CAPSULE)) == []


@pytest.mark.parametrize(
    "kind", ["[eventfd]", "[eventpoll]", "inotify", "[signalfd]", "[timerfd]", "[fanotify]"]
)
def test_what_criu_saves_of_the_kernel_does_not_block(kind: str) -> None:
    assert blocking(tree(nameless(kind))) == set()


@pytest.mark.parametrize(
    "kind", ["[perf_event]", "bpf-map", "bpf-prog", "[userfaultfd]", "seccomp notify", "kvm-vm", "[new]"]
)
def test_other_objects_of_the_kernel_block(kind: str) -> None:
    assert blocking(tree(nameless(kind))) == {"unsupported-file"}


def test_a_ring_blocks_and_relive_run_is_the_remedy() -> None:
    (one,) = found(tree(nameless("[io_uring]")))
    assert one.code == "io-uring" and one.pid == 10 and "relive run" in str(one.remedy)


def test_a_pidfd_of_a_process_inside_is_well_and_of_one_outside_blocks() -> None:
    inside, outside, dead = (nameless("[pidfd]", about=f"flags: 02\nPid:\t{pid}\n") for pid in (11, 99, -1))
    assert blocking(tree(inside, dead, children=(process(11),))) == set()
    assert blocking(tree(outside)) == {"pidfd-outside"}


def test_an_epoll_that_waits_for_what_was_closed_blocks() -> None:
    assert blocking(tree(nameless("[eventpoll]", closed=(7,)))) == {"epoll-closed"}


@pytest.mark.parametrize(
    ("path", "major", "minor"),
    [("/dev/null", 1, 3), ("/dev/urandom", 1, 9), ("/dev/pts/2", 136, 2), ("/dev/tty", 5, 0)],
)
def test_devices_that_a_branch_has(path: str, major: int, minor: int) -> None:
    assert blocking(tree(device(path, major, minor))) == set()


@pytest.mark.parametrize(
    ("path", "major", "minor", "code"),
    [
        ("/dev/kmsg", 1, 11, "unsupported-file"),
        ("/dev/net/tun", 10, 200, "unsupported-file"),
        ("/dev/fuse", 10, 229, "unsupported-file"),
        ("/dev/nvidia0", 195, 0, "gpu"),
        ("/dev/dri/renderD128", 226, 128, "gpu"),
        ("/dev/kfd", 240, 0, "gpu"),
    ],
)
def test_devices_that_block(path: str, major: int, minor: int, code: str) -> None:
    assert blocking(tree(device(path, major, minor))) == {code}


def test_a_disk_blocks() -> None:
    assert blocking(tree(device("/dev/sda", 8, 0, stat.S_IFBLK))) == {"unsupported-file"}


def test_mapped_memory() -> None:
    assert blocking(tree(root=mapped("/dev/nvidia-uvm"))) == {"gpu"}
    assert blocking(tree(root=mapped("/dmabuf:x"))) == {"gpu"}
    assert blocking(tree(root=mapped("/dev/mem"))) == {"unsupported-file"}
    assert blocking(tree(root=mapped("/dev/zero (deleted)"))) == set()
    assert blocking(tree(root=mapped("/dev/shm/x"))) == set()
    assert blocking(tree(root=mapped("[uprobes]"))) == {"traced"}
    assert blocking(tree(root=mapped("/secretmem (deleted)"))) == {"unsupported-file"}
    assert blocking(tree(root=mapped("anon_inode:[perf_event]"))) == {"unsupported-file"}


def test_system_v_memory_blocks_where_it_is_the_hosts_and_is_told_once() -> None:
    segment = mapped("/SYSV00000000 (deleted)")
    assert len(found(tree(root=segment, children=(process(11, **segment),)))) == 1
    apart = segment | {"spaces": SPACES | {"ipc": 2}}
    assert blocking(tree(root=apart)) == set()
    assert blocking(tree(root=segment, kind=TargetKind.CAPSULE)) == set()


def test_memory_of_its_own_kind_is_noted() -> None:
    codes = [one.code for one in found(tree(root={"memory": Memory(huge=2 << 20, locked=4096)}))]
    assert codes == ["huge-pages", "locked-memory"]


def unix(inode: int, peer: int, kind: int = socket.SOCK_STREAM, name: str = "") -> dict[int, UnixSocket]:
    return {inode: UnixSocket(inode, kind, listens=False, name=name, peer=peer)}


def sock(inode: int, number: int = 6, protocol: str = "UNIX-STREAM") -> HeldDescriptor:
    return HeldDescriptor(number, f"socket:[{inode}]", SOCKET, inode=inode, protocol=protocol)


def test_a_unix_stream_blocks_where_its_other_end_is_outside() -> None:
    both = unix(1, 2) | unix(2, 1)
    assert blocking(tree(sock(1), sock(2, 7), unix=both)) == set()
    (one,) = found(tree(sock(1), unix=both | unix(2, 1, name="/run/x"), owners={2: Outsider(9, "dbus")}))
    assert one.code == "half-unix-stream" and "/run/x" in one.subject and "dbus (pid 9)" in one.cause
    assert blocking(tree(sock(1), unix=unix(1, 0))) == set()


def test_a_unix_stream_to_the_journal_is_noted() -> None:
    both = unix(1, 2) | unix(2, 1, name="/run/systemd/journal/stdout")
    (one,) = found(tree(sock(1), unix=both))
    assert (one.severity, one.code) == ("note", "journal-outside")


def test_unix_datagrams_go_nowhere_in_a_branch_where_their_target_has_a_name_and_block_elsewhere() -> None:
    named = unix(1, 2, socket.SOCK_DGRAM) | unix(2, 0, socket.SOCK_DGRAM, "/run/log")
    (one,) = found(tree(sock(1, protocol="UNIX"), unix=named))
    assert (one.severity, one.code) == ("note", "datagrams-outside")
    nobody = unix(1, 2, socket.SOCK_DGRAM) | unix(2, 1, socket.SOCK_DGRAM)
    assert blocking(tree(sock(1, protocol="UNIX"), unix=nobody)) == {"half-unix-stream"}


@pytest.mark.parametrize("protocol", ["AF_VSOCK", "MPTCP", "SCTP", "PING", "ALG", "XDP", "TIPC"])
def test_sockets_of_other_kinds_block(protocol: str) -> None:
    assert blocking(tree(sock(1, protocol=protocol))) == {"unsupported-socket"}


def test_netlink_blocks_only_with_unread_messages() -> None:
    assert blocking(tree(sock(1, protocol="NETLINK"))) == set()
    assert blocking(tree(sock(1, protocol="NETLINK"), unread={1: 20})) == {"unsupported-socket"}


HERE, THERE = ("127.0.0.1", 8000), ("10.0.0.5", 5432)


def test_connections_that_the_service_opened_are_lost_and_those_of_its_clients_are_not() -> None:
    listening = {1: Internet(HERE, ("0.0.0.0", 0), listens=True)}
    client = {2: Internet(HERE, ("10.0.0.9", 40000), listens=False)}
    out = {3: Internet(("10.0.0.1", 50000), THERE, listens=False)}
    held = [sock(inode, inode, "TCP") for inode in (1, 2, 3)]
    (one,) = found(tree(*held, connections=listening | client | out))
    assert (one.severity, one.code) == (
        "lost",
        "connection-outside",
    ) and "10.0.0.5:5432 (PostgreSQL)" in one.subject


def test_a_port_that_somebody_else_listens_on_does_not_make_a_client_of_it() -> None:
    others = {9: Internet(("10.0.0.1", 50000), ("0.0.0.0", 0), listens=True)}
    out = {3: Internet(("10.0.0.1", 50000), ("2001:db8::1", 443), listens=False)}
    (one,) = found(tree(sock(3, protocol="TCPv6"), connections=others | out))
    assert "[2001:db8::1]:443 (HTTPS)" in one.subject


def test_connections_within_the_service_are_well() -> None:
    pair = {1: Internet(HERE, THERE, listens=False), 2: Internet(THERE, HERE, listens=False)}
    assert found(tree(sock(1, 1, "TCP"), sock(2, 2, "TCP"), connections=pair)) == []
    waiting = {
        1: Internet(HERE, ("0.0.0.0", 0), listens=True),
        2: Internet(("127.0.0.1", 40000), HERE, listens=False),
    }
    assert found(tree(sock(1, 1, "TCP"), sock(2, 2, "TCP"), connections=waiting)) == []


def test_processes() -> None:
    assert blocking(tree(root={"tracer": 5})) == {"traced"}
    assert blocking(tree(root={"tracer": 5}, limits=Limits(spaces=SPACES, watched=True))) == set()
    assert blocking(tree(limits=Limits(spaces=SPACES, ptrace_scope=3))) == {"traced"}
    assert blocking(tree(limits=Limits(spaces=SPACES, ptrace_scope=2))) == set()
    several = {"user": (0, 65534, 0)}
    assert blocking(tree(root=several)) == set()
    without = Limits(spaces=SPACES, reads_limits=False)
    assert blocking(tree(root=several, limits=without)) == {"limits-of-other-user"}
    assert blocking(tree(root={"user": (5, 5, 5)}, limits=without)) == set()
    assert blocking(tree(root={"inner_session": 0})) == {"session-outside-namespace"}
    assert [one.code for one in found(tree(root={"state": "D"}))] == ["uninterruptible"]


def test_a_table_with_fewer_than_four_free_places_blocks() -> None:
    held = [file(f"/x{number}", number=number, inode=number) for number in range(10)]
    assert blocking(tree(*held, root={"most_descriptors": 13})) == {"descriptors-full"}
    assert blocking(tree(*held, root={"most_descriptors": 14})) == set()
    # RLIMIT_NOFILE was lowered afterwards: those above it take no place.
    beyond = [file("/y", number=100 + number, inode=number) for number in range(9)]
    assert blocking(tree(*beyond, root={"most_descriptors": 5})) == set()


@pytest.mark.parametrize("kind", ["pid", "ipc", "uts", "user", "time", "mnt", "net"])
def test_one_namespace_of_each_kind_is_allowed(kind: str) -> None:
    other = process(11, spaces=SPACES | {kind: 2})
    assert blocking(tree(children=(other,))) == {"nested-namespace"}


def test_namespaces_that_do_not_matter() -> None:
    assert blocking(tree(children=(process(11, spaces=SPACES | {"cgroup": 2}),))) == set()
    assert blocking(tree(root={"spaces": SPACES | {"net": 2, "ipc": 2}})) == set()
    assert blocking(tree(root={"spaces": SPACES | {"user": 2}})) == {"nested-namespace"}
    assert blocking(tree(root={"spaces": SPACES | {"time_for_children": 2}})) == {"nested-namespace"}


def test_sessions() -> None:
    assert [one.code for one in found(tree(root={"session": 3}))] == ["session-outside"]
    shared = process(11, session=3)
    assert blocking(tree(root={"session": 3}, children=(shared,))) == set()
    assert blocking(tree(children=(process(11, session=4),))) == {"session-outside"}
    assert blocking(tree(children=(process(11, session=4),), ended=frozenset({4}))) == set()


def test_a_file_of_another_mount_namespace_blocks() -> None:
    assert blocking(tree(file("/var/log/x", mount=77))) == {"outside-mount"}
    assert blocking(tree(file("/memfd:x (deleted)", mount=77))) == set()
    assert blocking(tree(HeldDescriptor(1, "pipe:[5]", stat.S_IFIFO, mount=77))) == set()
    bound = HeldDescriptor(-1, "/usr/bin/x", FILE, mount=77)
    assert blocking(tree(root={"bound": (bound,)})) == {"outside-mount"}


def test_deleted_files() -> None:
    gone = file("/x (deleted)", links=0, size=5000)
    assert blocking(tree(gone)) == set()
    assert blocking(tree(gone, limits=Limits(spaces=SPACES, ghost=4999))) == {"ghost-too-large"}
    assert blocking(tree(file("/x (deleted)"))) == set()
    assert blocking(tree(file("/x (deleted)", homeless=True))) == {"link-remap"}


def test_files_of_other_machines_are_left_out_once_for_each_mount() -> None:
    remote = Mount(
        identifier=2, device="0:9", root="/", point="/mnt/nfs", kind="nfs4", source="nas:/", options="rw"
    )
    held = [file(f"/mnt/nfs/{number}", number=number, mount=2, inode=number) for number in range(3)]
    (one,) = found(tree(*held, mounts={2: remote}))
    assert (one.severity, one.code, one.subject) == ("left-out", "remote-files", "/mnt/nfs (nfs4)")


def test_open_files_over_the_limit_are_left_out() -> None:
    limits = Limits(spaces=SPACES, open_files=1000)
    assert found(tree(file("/srv/x", flags=os.O_RDWR, size=1000), limits=limits)) == []
    (one,) = found(tree(file("/srv/x", flags=os.O_RDWR, size=1001), limits=limits), Severity.LEFT_OUT)
    assert one.code == "open-files-too-large" and "/srv/x" in one.subject
    assert found(tree(file("/usr/lib/x", size=5000), limits=limits)) == []


def test_large_files_are_noted_where_copies_are_real_ones() -> None:
    large = 300 << 20
    data = (
        DataFile("/srv/a", large, "ext4"),
        DataFile("/srv/b", large, "btrfs"),
        DataFile("/srv/c", 100 << 20, "ext4"),
    )
    (one,) = found(tree(data=data))
    assert one.code == "large-file" and one.subject.startswith("/srv/a (300.0 MiB)")


def test_pipes_and_terminals_are_noted() -> None:
    log = HeldDescriptor(1, "pipe:[5]", stat.S_IFIFO, flags=os.O_WRONLY)
    own = HeldDescriptor(7, "pipe:[6]", stat.S_IFIFO, flags=os.O_WRONLY)
    reading = HeldDescriptor(8, "pipe:[6]", stat.S_IFIFO, flags=os.O_RDONLY)
    terminal = device("/dev/pts/0", 136, 0)
    assert [one.code for one in found(tree(log, own, reading, terminal))] == ["pipe-outside", "terminal"]


def test_the_worst_stands_first_and_nothing_twice() -> None:
    seen = tree(device("/dev/pts/0", 136, 0), sock(1, protocol="PING"), children=(process(11),))
    assert [one.severity for one in findings_of(seen)] == ["blocks", "note", "note"]


@pytest.mark.parametrize(
    ("path", "what"),
    [
        ("/memfd:x (deleted)", "memfd_create"),
        ("/dev/shm/sem.Ab3 (deleted)", "without a name"),
        ("/[aio] (deleted)", "Linux AIO"),
    ],
)
def test_memory_that_no_micro_commit_follows_is_named(path: str, what: str) -> None:
    (note,) = (
        one for one in findings_of(tree(root=mapped(path), kind=TargetKind.CAPSULE)) if one.severity == "note"
    )
    assert note.code == "full-commits-only" and what in note.subject and "a full one" in note.cause


def test_what_keeps_micro_commits_away_is_said_once_for_all_processes() -> None:
    worker = process(11, **mapped("/memfd:x (deleted)"))
    of_root = mapped("/[aio] (deleted)")
    seen = tree(root=of_root, children=(worker, process(12, **of_root)), kind=TargetKind.CAPSULE)
    (note,) = findings_of(seen)
    assert note.subject == "a ring of Linux AIO, shared memory of memfd_create(2)" and note.pid == 10


def test_memory_that_is_private_is_followed() -> None:
    private = {"mappings": (Mapping(0x1000, 0x2000, "rw-p", 0, "/memfd:x (deleted)"),)}
    assert findings_of(tree(root=private, kind=TargetKind.CAPSULE)) == []


def test_a_container_s_volumes_are_held_in_part() -> None:
    """Those it writes to, each once; its own file systems, and a single file that is mounted, are none."""
    mounts = {
        1: replace(ROOT, kind="overlay"),
        2: replace(ROOT, identifier=2, point="/data"),
        3: replace(ROOT, identifier=3, point="/etc/hosts"),
        4: replace(ROOT, identifier=4, point="/tmp", kind="tmpfs"),
        5: replace(ROOT, identifier=5, point="/read"),
    }
    held = [
        file(path, mount=mount, inode=number, flags=flags)
        for number, (path, mount, flags) in enumerate(
            [
                ("/var/log/x", 1, 1),
                ("/data/db", 2, 2),
                ("/data/db-wal", 2, 2),
                ("/etc/hosts", 3, 1),
                ("/tmp/x", 4, 1),
                ("/read/x", 5, 0),
            ]
        )
    ]
    (one,) = found(tree(*held, kind=TargetKind.CONTAINER, mounts=mounts))
    assert (one.severity, one.code, one.subject) == ("left-out", "volume-files", "/data (ext4)")
    assert found(tree(file("/data/db", mount=2, flags=2), mounts={1: ROOT, 2: mounts[2]})) == []
