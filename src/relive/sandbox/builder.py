"""Bringing a commit to life, in a thread whose namespaces are the branch's.

1. New PID, mount, network, IPC and UTS namespaces, with a native process 1; loopback up, and the proof that there is no
   way out; CRIU started, to wait for its request.
2. The root file system: the host's files, over them the commit's, over them an empty layer for what the branch writes.
   All of this goes on while the caller still lays out and checks the commit's images.
3. The addresses that the target used, the other ends of its connections, and what else stands for the outside.
4. CRIU restores the processes; just before they run, set their clock and close /proc's dangerous doors.

Namespaces are a thread's (namespaces(7)), so nothing of the process that restores needs to be forked. In this thread
paths and sockets are the branch's, while /proc/self is not there and pids are still the host's.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import stat
import threading
import time
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from pathlib import Path

from relive.engine import criu_rpc_pb2 as rpc
from relive.engine.criu import Conversation, CriuDied, CriuTimedOut, CriuTools, base_options
from relive.engine.failures import explain, read_error_lines
from relive.errors import ReliveError, RestoreFailed, RestoreTimedOut
from relive.images.sockets import TcpConnection
from relive.kernel import loopback
from relive.kernel.mounts import MountFlag, bind, make_private, mount, pivot_root
from relive.kernel.namespaces import Namespace, unshare
from relive.kernel.procfs import tree_of
from relive.model.commit import Outlet
from relive.sandbox.clock import shift_wall_clock
from relive.sandbox.firstprocess import FirstProcess
from relive.sandbox.lazy.pager import Pager
from relive.sandbox.outlets import OpenOutlet, open_outlets
from relive.sandbox.outside import Ends, Outside, open_goals
from relive.sandbox.peers import forge_peer
from relive.sandbox.rootfs import CoveredPoint, RootBuilder
from relive.sandbox.seal import check_sealed

__all__ = ["BranchBuilder", "BranchPlan", "Built", "RootPlan", "close_proc"]

_NAMESPACES = Namespace.PID | Namespace.MOUNT | Namespace.NETWORK | Namespace.IPC | Namespace.UTS
_SPARE = 5.0  # [s] on top of CRIU's own limit, for mounts and sockets
_READ_ONLY_PROC = ("sys", "irq", "bus", "fs", "sysrq-trigger")
_FIRST_OWN_NUMBER, _OWN_NUMBERS = 30000, 64
_HIDDEN_PROC = ("kcore", "keys", "timer_list", "sched_debug", "kallsyms")


@dataclass(frozen=True, slots=True)
class RootPlan:
    """What the branch's files are made of.

    Attributes:
        covered: mount points, each with the directory of committed files that lie over the host's, or None.
        memory_layers: (mount point, directory) of committed files that go into file systems of their own.
    """

    home: Path
    covered: list[tuple[CoveredPoint, Path | None]]
    memory_layers: list[tuple[str, Path]]


@dataclass(frozen=True, slots=True)
class BranchPlan:
    """What has to be known of the images, which are laid out by then, before CRIU can be asked.

    Attributes:
        addresses: addresses that must be local.
        outside_names: unix datagram sockets that somebody has to listen at, such as a system log's.
        connections: established connections to forge the other ends of; inward[i] tells whether the i-th is a client's.
        answered: ports of clients that had taken all that the service had sent them.
        listening: where the service itself listens.
        outside: what stands for the outside.
        clock_shift_ns: what to add to the wall clock; None: leave it.
        root: pid of the target's root in its own PID namespace.
        taken_pids: pids and thread ids that the commit holds.
        limit: seconds for CRIU.
        owner: the end for process 1 of the line by which the branch ends with whoever holds the other.
        pager: the page daemon that brings memory in once the processes run; None: all of it is there before.
    """

    addresses: list[str]
    connections: list[TcpConnection]
    inward: list[bool]
    listening: list[tuple[str, int]]
    outlets: list[Outlet]
    outside_names: list[bytes]
    clock_shift_ns: int | None
    hostname: str
    root: int
    taken_pids: frozenset[int]
    limit: float
    owner: int
    pager: Pager | None = None
    outside: Outside = field(default_factory=Outside)
    answered: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Built:
    """A branch that runs.

    Attributes:
        init: host pid of its process 1, a child of this process.
        root: pid of the restored root in the branch.
        peers: the forged client ends of its inward connections, by their port; the receiver closes them.
        ends: what stands for the outside; the receiver closes it.
        seal_us: how long the proof took that there is no way out.
    """

    init: int
    root: int
    peers: dict[int, int]
    ends: Ends
    seal_us: int


class BranchBuilder:
    """Builds one branch, as far as it has been told what to build: ``mount_root`` and ``finish`` tell it more.

    ``abandon`` at any time undoes everything.
    """

    def __init__(self, directory: Path, tools: CriuTools) -> None:
        """Start building, in a thread of its own. ``directory`` is the branch's, with an empty ``images`` in it."""
        self._directory = directory
        self._tools = tools
        self._root: Future[RootPlan] = Future()
        self._init: Future[int] = Future()
        self._plan: Future[BranchPlan] = Future()
        self._built: Future[Built] = Future()
        threading.Thread(target=self._work, name="branch-builder", daemon=True).start()

    def mount_root(self, plan: RootPlan) -> None:
        """Begin with the files."""
        self._root.set_result(plan)

    def finish(self, plan: BranchPlan) -> Built:
        """Build the rest.

        Raises:
            ReliveError: the branch cannot live; nothing is left of it.
            RestoreTimedOut: it took longer than ``plan.limit``.
        """
        self._plan.set_result(plan)
        try:
            return self._built.result(plan.limit + _SPARE)
        except TimeoutError:
            if self._built.done():
                raise
            raise RestoreTimedOut(
                "the restore was given up", cause=f"it took longer than {plan.limit:g} s"
            ) from None

    def abandon(self) -> None:
        """Give up: end what has been started. Doing it twice, or after a failure, is no error."""
        self._root.cancel()
        self._plan.cancel()
        has_failed = self._built.done() and self._built.exception() is not None
        if self._init.done() and not has_failed:
            # Whatever the thread waits for ends with the namespaces.
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._init.result(), signal.SIGKILL)
        if self._built.done() and not has_failed:
            os.waitpid(self._init.result(), 0)
            for descriptor in self._built.result().peers.values():
                os.close(descriptor)
            self._built.result().ends.close()
        wait([self._built], timeout=_SPARE)  # it may be writing into the branch's directory

    def _work(self) -> None:
        try:
            self._built.set_result(self._build())
        except ReliveError as error:
            self._built.set_exception(error)
        except BaseException as error:
            failure = RestoreFailed(
                "the branch's namespaces could not be set up",
                cause=f"{type(error).__name__}: {error}",
                remedy="run `relive doctor`",
            )
            failure.__cause__ = error
            self._built.set_exception(failure)

    def _build(self) -> Built:
        unshare(_NAMESPACES)
        # Of this thread and its children alone. pivot_root(2) takes along only those who stand there.
        os.chdir("/")
        make_private()
        with contextlib.ExitStack() as stack:
            first = stack.enter_context(FirstProcess(self._tools.init))
            self._init.set_result(first.pid)
            try:
                return self._furnish(first, stack)
            except BaseException:
                first.kill()
                raise

    def _furnish(self, first: FirstProcess, stack: contextlib.ExitStack) -> Built:
        loopback.bring_up()
        began = time.monotonic_ns()
        check_sealed()
        seal_us = (time.monotonic_ns() - began) // 1000
        images = _keep(stack, os.open(self._directory / "images", os.O_RDONLY | os.O_DIRECTORY))
        status = _keep(
            stack, os.open(self._directory / "status", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        )
        number = free_number(frozenset())
        early = self._start_criu(first, number, [images])
        stack.callback(early.close)
        new_root = self._mount_root(self._root.result(), first)
        plan = self._plan.result()
        ends = Ends()
        failing = stack.enter_context(contextlib.ExitStack())
        failing.callback(ends.close)
        peers = _prepare_network(plan, stack, ends)
        pivot_root(new_root)
        socket.sethostname(plan.hostname)
        outlets, heard = open_outlets(plan.outlets, plan.outside_names, stack)
        inward = [peer for peer, is_inward in zip(peers, plan.inward, strict=True) if is_inward]
        kept = [peer.fileno() for peer in inward]
        first.hold([status, *kept, *(descriptor for pair in heard for descriptor in pair)])
        criu = early
        if outlets or free_number(plan.taken_pids) != number:
            # Seldom: it has to inherit what has just been opened, or has a number that the commit holds.
            early.close()
            criu = self._start_criu(
                first, free_number(plan.taken_pids), [images, *(o.inside for o in outlets)]
            )
            stack.callback(criu.close)
        if plan.pager is not None:
            # Before CRIU begins: whatever becomes of the page daemon from here on, nobody sees a wrong page.
            first.hold_lifeline(plan.pager.lifeline)
        first.hold_owner(plan.owner)
        first.give_up_capabilities()
        root = _restore(plan, criu, images, outlets)
        # Not before CRIU has ended: only then are the processes this one's children, and it leaves when it has none.
        first.become(root, len(kept))
        failing.pop_all()
        forged = {peer.getsockname()[1]: os.dup(peer.fileno()) for peer in inward}
        return Built(first.pid, root, forged, ends, seal_us)

    def _start_criu(self, first: FirstProcess, number: int, keep: list[int]) -> Conversation:
        """Start CRIU under a number with room behind it for its own few processes."""
        first.set_last_number(number)
        return Conversation(self._tools, keep=keep)

    def _mount_root(self, plan: RootPlan, first: FirstProcess) -> Path:
        """Mount everything of the new root but its entering; returns where it is."""
        builder = RootBuilder(self._directory, home=plan.home, tools=self._tools.directory, devices=False)
        for point, committed in plan.covered:
            builder.cover(point, committed)
        builder.own_devices()
        builder.own_run()
        for place, tree in plan.memory_layers:
            _copy_tree(tree, builder.inside(place))
        builder.share_standard_streams(self._directory / "io")
        builder.share_recorder(self._directory / "rings")
        builder.hide_home()
        first.mount_proc(builder.inside("/proc"))
        return builder.root


def _keep(stack: contextlib.ExitStack, descriptor: int) -> int:
    """Have a descriptor closed at the end, and return it."""
    stack.callback(os.close, descriptor)
    return descriptor


def _copy_tree(source: Path, goal: Path) -> None:
    """Copy a laid-out layer with owners, modes and times; of sockets and FIFOs the names, which CRIU fills with life."""
    _copy_facts(source.lstat(), goal)
    with os.scandir(source) as entries:
        for entry in entries:
            facts, here = entry.stat(follow_symlinks=False), goal / entry.name
            kind = stat.S_IFMT(facts.st_mode)
            if kind == stat.S_IFDIR:
                here.mkdir(exist_ok=True)
                _copy_tree(Path(entry.path), here)
                continue
            if kind in (stat.S_IFREG, stat.S_IFLNK):
                shutil.copy2(entry.path, here, follow_symlinks=False)
            else:
                os.mknod(here, kind | 0o600)
            _copy_facts(facts, here)


def _copy_facts(facts: os.stat_result, goal: Path) -> None:
    os.chown(goal, facts.st_uid, facts.st_gid, follow_symlinks=False)
    if not stat.S_ISLNK(facts.st_mode):
        goal.chmod(stat.S_IMODE(facts.st_mode))


def _prepare_network(plan: BranchPlan, stack: contextlib.ExitStack, ends: Ends) -> list[socket.socket]:
    """Give loopback the addresses, forge the other ends of the connections; they are closed with ``stack``.

    Those that shall go on are in ``ends`` too, with all else that stands for the outside.
    """
    loopback.add_addresses(sorted({*plan.addresses, *plan.outside.addresses}))
    peers = [
        stack.enter_context(forge_peer(connection, has_all=is_inward and connection.peer[1] in plan.answered))
        for connection, is_inward in zip(plan.connections, plan.inward, strict=True)
    ]
    for connection, peer in zip(plan.connections, peers, strict=True):
        name = connection.local, connection.peer
        if name in plan.outside.continued:
            ends.continued[name] = os.dup(peer.fileno())
    open_goals(plan.outside, plan.listening, ends)
    return peers


def _restore(plan: BranchPlan, criu: Conversation, images: int, outlets: list[OpenOutlet]) -> int:
    options = base_options(f"/proc/self/fd/{images}")
    options.inherit_fd.extend(rpc.InheritFd(key=outlet.key, fd=outlet.inside) for outlet in outlets)
    options.external.extend(outlet.key for outlet in outlets if outlet.master is not None)
    options.notify_scripts = True
    options.lazy_pages = plan.pager is not None

    def notified(script: str, _pid: int) -> None:
        if script == "pre-resume":
            if plan.pager is not None:
                plan.pager.wait_until_held()
            if plan.clock_shift_ns is not None:
                shift_wall_clock(tree_of(plan.root), plan.clock_shift_ns)
            close_proc()

    try:
        with contextlib.closing(criu):
            request = rpc.Request(type=rpc.RESTORE, opts=options)
            answer = criu.ask(request, limit=plan.limit, on_notification=notified)
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


def close_proc() -> None:
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
    explanation = explain(read_error_lines("criu.log", directory=images) or [sentence])
    return RestoreFailed(
        f"the commit was not restored: {explanation.what}",
        cause=f"CRIU says: {explanation.sentence}",
        remedy=explanation.remedy,
    )
