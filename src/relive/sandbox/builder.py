"""Bringing a commit to life: what process 1 of a branch does, inside its new namespaces.

1. Mount the root file system: the host's files, over them the commit's, over them an empty layer for what the branch writes.
2. Bring loopback up, give it every address the target used, prove that there is no way out.
3. Forge the other ends of the target's connections.
4. Let CRIU restore the processes; just before they run, set their clock and close /proc's dangerous doors.
5. Report, and become ``relive-init``.
"""

from __future__ import annotations

import os
import socket
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from relive.engine import criu_rpc_pb2 as rpc
from relive.engine.criu import CriuDied, CriuTimedOut, CriuTools, ask_criu, base_options
from relive.engine.failures import explain, read_error_lines
from relive.errors import RestoreFailed, RestoreTimedOut
from relive.images.sockets import TcpConnection
from relive.kernel import loopback
from relive.kernel.mounts import MountFlag, bind, make_private, mount, pivot_root
from relive.kernel.procfs import tree_of
from relive.model.commit import Outlet
from relive.sandbox.clock import shift_wall_clock
from relive.sandbox.peers import forge_peer
from relive.sandbox.rootfs import IO_DIRECTORY, CoveredPoint, RootBuilder
from relive.sandbox.seal import check_sealed
from relive.sandbox.spawn import Channel, become_init, standard_streams

__all__ = ["BranchPlan", "build_branch"]

_READ_ONLY_PROC = ("sys", "irq", "bus", "fs", "sysrq-trigger")
_FIRST_OWN_NUMBER, _OWN_NUMBERS = 30000, 64
_HIDDEN_PROC = ("kcore", "keys", "timer_list", "sched_debug", "kallsyms")


@dataclass(frozen=True, slots=True)
class BranchPlan:
    """All that process 1 needs to know; decided before it is started.

    Attributes:
        directory: the branch's directory on the host, with ``images`` laid out in it.
        covered: mount points, each with the directory of committed files that lie over the host's, or None.
        memory_layers: (mount point, directory) of committed files that go into file systems of their own.
        addresses: addresses that must be local.
        outside_names: unix datagram sockets that somebody has to listen at, such as a system log's.
        connections: established connections to forge the other ends of; inward[i] tells whether the i-th is a client's.
        clock_shift_ns: what to add to the wall clock; None: leave it.
        root: pid of the target's root in its own PID namespace.
        taken_pids: pids and thread ids that the commit holds.
        limit: seconds for CRIU.
    """

    directory: Path
    home: Path
    tools: Path
    covered: list[tuple[CoveredPoint, Path | None]]
    memory_layers: list[tuple[str, Path]]
    addresses: list[str]
    connections: list[TcpConnection]
    inward: list[bool]
    outlets: list[Outlet]
    outside_names: list[bytes]
    clock_shift_ns: int | None
    hostname: str
    root: int
    taken_pids: frozenset[int]
    limit: float


def build_branch(plan: BranchPlan, channel: Channel) -> NoReturn:
    """Run in process 1 of new PID, mount, network, IPC and UTS namespaces; never returns.

    Raises:
        ReliveError: the branch cannot live; the caller reports it and ends, which undoes everything.
        OSError: a mount or socket failed.
    """
    status = os.open(plan.directory / "status", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    images = os.open(plan.directory / "images", os.O_RDONLY | os.O_DIRECTORY)
    _mount_root(plan)
    socket.sethostname(plan.hostname)
    _prepare_network(plan)
    peers = [forge_peer(connection) for connection in plan.connections]
    standard_streams(None, None)
    outlets = [_open_outlet(outlet, number) for number, outlet in enumerate(plan.outlets)]
    listeners = [_listen(name, number) for number, name in enumerate(plan.outside_names)]
    pid = _restore(plan, images, outlets)
    for outlet in outlets:
        os.close(outlet.inside)
    inward = [peer for peer, is_inward in zip(peers, plan.inward, strict=True) if is_inward]
    for peer, is_inward in zip(peers, plan.inward, strict=True):
        if not is_inward:
            peer.close()  # to the service, its database or upstream closed the connection
    keep = [peer.fileno() for peer in inward]
    ports = [peer.getsockname()[1] for peer in inward]
    channel.send_values({"root": pid, "ports": ports}, keep)
    heard = [(one.master, one.log) for one in outlets if one.master is not None and one.log is not None]
    become_init(CriuTools(plan.tools).init, status, pid, keep, heard + listeners)


def _mount_root(plan: BranchPlan) -> None:
    make_private()
    builder = RootBuilder(plan.directory, home=plan.home, tools=plan.tools, devices=False)
    for point, committed in plan.covered:
        builder.cover(point, committed)
    builder.own_devices()
    builder.own_run()
    for place, tree in plan.memory_layers:
        _copy_tree(tree, builder.inside(place))
    builder.share_standard_streams(plan.directory / "io")
    builder.hide_home()
    builder.mount_proc()
    pivot_root(builder.root)


def _copy_tree(source: Path, goal: Path) -> None:
    """Copy a laid-out layer with owners, modes and times; of sockets and FIFOs the names, which CRIU fills with life."""
    import shutil  # noqa: PLC0415 - seldom needed, and a branch is made often

    for directory, names, files in os.walk(source):
        here = goal / Path(directory).relative_to(source)
        here.mkdir(exist_ok=True)
        _copy_facts(Path(directory), here)
        for name in files:
            kind = stat.S_IFMT((Path(directory) / name).lstat().st_mode)
            if kind in (stat.S_IFREG, stat.S_IFLNK):
                shutil.copy2(Path(directory) / name, here / name, follow_symlinks=False)
            else:
                os.mknod(here / name, kind | 0o600)
            _copy_facts(Path(directory) / name, here / name)
        for name in names:
            if (Path(directory) / name).is_symlink():
                (here / name).symlink_to((Path(directory) / name).readlink())


def _copy_facts(source: Path, goal: Path) -> None:
    facts = source.lstat()
    os.chown(goal, facts.st_uid, facts.st_gid, follow_symlinks=False)
    if not goal.is_symlink():
        goal.chmod(facts.st_mode & 0o7777)


def _prepare_network(plan: BranchPlan) -> None:
    loopback.bring_up()
    check_sealed()
    for address in plan.addresses:
        loopback.add_address(address)


def _restore(plan: BranchPlan, images: int, outlets: list[_OpenOutlet]) -> int:
    tools = CriuTools(plan.tools)
    _keep_numbers_free(plan.taken_pids)
    options = base_options(f"/proc/self/fd/{images}")
    options.inherit_fd.extend(rpc.InheritFd(key=outlet.key, fd=outlet.inside) for outlet in outlets)
    options.external.extend(outlet.key for outlet in outlets if outlet.master is not None)
    options.notify_scripts = True
    restored: list[int] = []

    def notified(script: str, pid: int) -> None:
        if script == "pre-resume":
            restored.append(pid or plan.root)
            if plan.clock_shift_ns is not None:
                shift_wall_clock(tree_of(plan.root), plan.clock_shift_ns)
            _close_proc()

    try:
        answer = ask_criu(
            tools,
            rpc.Request(type=rpc.RESTORE, opts=options),
            limit=plan.limit,
            keep={images: images, **{outlet.inside: outlet.inside for outlet in outlets}},
            on_notification=notified,
        )
    except CriuTimedOut:
        raise RestoreTimedOut(
            "the restore was given up",
            cause=f"CRIU took longer than {plan.limit:g} s",
            remedy="raise `restore_limit` in relive.toml; a lock that the original holds can also cause this",
        ) from None
    except CriuDied as died:
        raise _failure(images, f"CRIU ended with status {died.status} in the middle") from None
    if not answer.success:
        raise _failure(images, answer.cr_errmsg)
    return answer.restore.pid


def free_number(taken: frozenset[int]) -> int:
    """A number with room behind it for CRIU's own few processes, none of which the commit holds."""
    number = _FIRST_OWN_NUMBER
    while any(number <= pid <= number + _OWN_NUMBERS for pid in taken):
        number -= _OWN_NUMBERS
    return number


def _keep_numbers_free(taken: frozenset[int]) -> None:
    """Let CRIU's own processes have numbers that no process of the commit needs: the next is one above ns_last_pid."""
    Path("/proc/sys/kernel/ns_last_pid").write_text(str(free_number(taken)))


@dataclass(frozen=True, slots=True)
class _OpenOutlet:
    """What a branch gets where the commit had the end of a pipe or a terminal.

    Attributes:
        inside: the descriptor for the restored process.
        master, log: of a terminal, its other side and the file that shall hold what it shows; else None.
    """

    key: str
    inside: int
    master: int | None = None
    log: int | None = None


def _open_outlet(outlet: Outlet, number: int) -> _OpenOutlet:
    """An outlet's far end is not part of the commit: the branch writes to a file instead, and reads nothing."""
    if outlet.key.startswith("tty["):
        log = _open_log(number)
        master, terminal = os.openpty()
        return _OpenOutlet(outlet.key, terminal, master, log)
    if not outlet.writable:
        return _OpenOutlet(outlet.key, os.open("/dev/null", os.O_RDONLY))
    return _OpenOutlet(outlet.key, _open_log(number))


def _listen(name: bytes, number: int) -> tuple[int, int]:
    """A datagram socket of that name in the place of the one outside, and the log for what it hears."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    if name.startswith(b"\0"):
        listener.bind(name)
    else:
        path = Path(os.fsdecode(name))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        listener.bind(name)
        path.chmod(0o666)  # a system log takes words from everybody
    return listener.detach(), _open_log(number, "datagrams")


def _open_log(number: int, kind: str = "outlet") -> int:
    return os.open(IO_DIRECTORY / f"{kind}-{number}.log", os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)


def _close_proc() -> None:
    """Keep root in the branch away from the parts of /proc that act on the whole machine.

    Done at the last moment, since CRIU itself writes to /proc/sys while it restores.
    """
    for name in _READ_ONLY_PROC:
        path = Path("/proc") / name
        if path.exists():
            bind(path, path, read_only=True)
    for name in _HIDDEN_PROC:
        path = Path("/proc") / name
        if path.exists():
            bind(Path("/dev/null"), path)
    mount("none", Path("/sys"), None, MountFlag.REMOUNT | MountFlag.BIND | MountFlag.READ_ONLY)


def _failure(images: int, sentence: str) -> RestoreFailed:
    explanation = explain(read_error_lines(Path(f"/proc/self/fd/{images}/criu.log")) or [sentence])
    return RestoreFailed(
        f"the commit was not restored: {explanation.what}",
        cause=f"CRIU says: {explanation.sentence}",
        remedy=explanation.remedy,
    )
