"""Bringing a commit to life, in a thread whose namespaces are the branch's.

1. New PID, mount, network, IPC and UTS namespaces, with a native process 1 in the branch's control groups; loopback up, and the
   proof that there is no way out; CRIU started, in these groups too, to wait for its request.
2. The root file system: the host's files or those of a container's image, over them the commit's, over them an empty
   layer for what the branch writes (``branch_root``). All of this goes on while the caller still lays out and checks the
   commit's images.
3. The addresses that the target used, the other ends of its connections, and what else stands for the outside.
4. CRIU restores the processes; just before they run, set their clock and close /proc's dangerous doors.

Namespaces are a thread's (namespaces(7)), so nothing of the process that restores needs to be forked. In this thread
paths and sockets are the branch's, while /proc/self is not there and pids are still the host's.

Danger: from ``branch_root.enter`` on, names lead to the commit's files, which may be hostile. Nothing may be imported, loaded or
executed from then on that has root's rights; CRIU is started before, and waits for its request. What gives up must end process
1, with which the kernel ends all that was made (``abandon``): whatever this thread waits for then hangs up.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Mapping, Set
from concurrent.futures import Future, wait
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from queue import SimpleQueue

from relive.checkpoint import criu_rpc_pb2 as rpc
from relive.checkpoint.criu import (
    CriuDied,
    CriuProcess,
    CriuTimedOut,
    CriuTools,
    Deadline,
    RunningCriu,
    base_options,
)
from relive.checkpoint.criu_errors import explain, read_error_lines
from relive.checkpoint.criu_template import CriuTemplate
from relive.errors import ReliveError, RestoreFailed, RestoreTimedOut
from relive.images.locks import check_posix_locks
from relive.kernel import loopback
from relive.kernel.connects import CONNECT_FILTER
from relive.kernel.io_counts import io_counts
from relive.kernel.mounts import detached, make_private
from relive.kernel.namespaces import Namespace, enter_namespaces, unshare
from relive.kernel.procfs import tree_of
from relive.kernel.resets import MOST_PAIRS, ResetsDropped
from relive.kernel.seccomp import ask_supervisor
from relive.sandbox.branch_plan import BranchPlan
from relive.sandbox.branch_root import BranchRoot
from relive.sandbox.cgroups import Groups
from relive.sandbox.clock import shift_wall_clock
from relive.sandbox.confinement import host_namespaces, prove_confined
from relive.sandbox.endpoints import OpenedEndpoints, open_endpoints
from relive.sandbox.init_process import FirstProcess
from relive.sandbox.limits import room_on
from relive.sandbox.remembered_numbers import correct_numbers
from relive.sandbox.rewinder import stop_before_it_runs
from relive.sandbox.seal import check_sealed
from relive.sandbox.sinks import OpenOutlet, listen_outside, open_log, open_logs, open_outlets
from relive.sandbox.tcp_peers import forge_peer

__all__ = ["BranchBuilder", "Built"]

_MEANWHILE_MTU = 65000  # [bytes] of loopback until the processes run; any but its own
_NAMESPACES = Namespace.MOUNT | Namespace.NETWORK | Namespace.IPC | Namespace.UTS
_SPARE = 5.0  # [s] on top of CRIU's own limit, for mounts and sockets
_FIRST_OWN_NUMBER, _OWN_NUMBERS = 30000, 64


@dataclass(frozen=True, slots=True)
class Built:
    """A branch that runs.

    Attributes:
        init: host pid of its process 1, a child of this process.
        root: pid of the restored root in the PID namespace of process 1.
        peers: the forged client ends of its inward connections, by their port; the receiver closes them.
        ends: what stands for the outside; the receiver closes it.
        seal_us: how long the proof took that there is no way out.
    """

    init: int
    root: int
    peers: dict[int, int]
    ends: OpenedEndpoints
    seal_us: int


class BranchBuilder:
    """Builds one branch, as far as it has been told what to build: ``stand_on`` and ``follow`` tell it more.

    ``abandon`` at any time undoes everything.
    """

    def __init__(
        self,
        directory: Path,
        tools: CriuTools,
        groups: Groups,
        *,
        asks: bool = False,
        template: CriuTemplate | None = None,
    ) -> None:
        """Start building, in a thread of its own.

        Args:
            directory: the branch's, with an empty ``images`` in it.
            asks: the plan may want to be asked about connects, so CRIU is not started before it is there.
            template: of the commit, from which CRIU is forked; not where ``asks``: it is not below this thread's filters.
        """
        self._directory = directory
        self._tools = tools
        self._groups = groups
        self._asks = asks
        self._template = template
        self._branch_root: Future[BranchRoot] = Future()
        self._init: Future[int] = Future()
        self._plan: Future[BranchPlan] = Future()
        self._built: Future[Built] = Future()
        self._joins: SimpleQueue[tuple[int, Future[None]] | None] = SimpleQueue()
        self._host: dict[str, str] = {}
        self._is_abandoned = False
        self._moved_at = 0.0  # [s] monotonic, written by the builder's thread
        self._limit = 0.0  # [s]
        threading.Thread(target=self._work, name="branch-builder", daemon=True).start()
        # The builder cannot start it: a thread that has left its PID namespace for one of its children gets none (clone(2)).
        threading.Thread(target=self._serve_joins, name="branch-groups", daemon=True).start()

    def stand_on(self, branch_root: BranchRoot) -> None:
        """Begin with the files."""
        self._branch_root.set_result(branch_root)

    def follow(self, plan: BranchPlan) -> None:
        """Have the rest built, while the caller does something else until it calls ``finish``."""
        self._moved_at = time.monotonic()
        self._limit = plan.limit
        self._plan.set_result(plan)

    def finish(self) -> Built:
        """Wait for the branch.

        Raises:
            ReliveError: the branch cannot live; nothing is left of it.
            RestoreTimedOut: for ``plan.limit`` nothing of it moved.
        """
        self._moved_at = time.monotonic()  # CRIU may have waited for what the caller did since
        while True:
            until = self._moved_at + self._limit + _SPARE
            try:
                return self._built.result(max(0.0, until - time.monotonic()))
            except TimeoutError:
                if self._built.done():  # just now
                    return self._built.result()
                if time.monotonic() >= self._moved_at + self._limit + _SPARE:
                    raise RestoreTimedOut(
                        "the restore was given up", cause=f"for {self._limit:g} s nothing of it moved"
                    ) from None

    def abandon(self) -> None:
        """Give up: end what has been started. Doing it twice, or after a failure, is no error."""
        self._branch_root.cancel()
        self._plan.cancel()
        if self._is_abandoned:
            return
        self._is_abandoned = True
        if self._init.done() and not self._has_failed():
            # Whatever the thread waits for ends with the namespaces.
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._init.result(), signal.SIGKILL)
        wait([self._built], timeout=_SPARE)  # it may be writing into the branch's directory
        # Looked at anew: a thread that failed of the kill has reaped process 1 and closed all by itself.
        if self._built.done() and not self._has_failed():
            os.waitpid(self._init.result(), 0)
            for descriptor in self._built.result().peers.values():
                os.close(descriptor)
            self._built.result().ends.close()

    def _has_failed(self) -> bool:
        return self._built.done() and self._built.exception() is not None

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
        finally:
            self._joins.put(None)

    def _join(self, pid: int, stack: contextlib.ExitStack) -> Future[None]:
        """Have a process moved into the control groups while the builder goes on: the kernel takes its time.

        It is to be reaped behind what is put on ``stack`` here, else its number might be another's by then.
        """
        joined: Future[None] = Future()
        self._joins.put((pid, joined))
        stack.callback(joined.exception)  # waits
        return joined

    def _serve_joins(self) -> None:
        while (asked := self._joins.get()) is not None:
            pid, joined = asked
            try:
                self._groups.add(pid)
            except BaseException as error:
                joined.set_exception(error)
            else:
                joined.set_result(None)

    def _build(self) -> Built:
        self._host = host_namespaces()
        unshare(_NAMESPACES)
        # Of this thread and its children alone. pivot_root(2) takes along only those who stand there.
        os.chdir("/")
        make_private()
        with contextlib.ExitStack() as stack:
            first = stack.enter_context(FirstProcess(self._tools.init, self._groups.directories))
            self._init.set_result(first.pid)
            try:
                # Of later children of this thread.
                enter_namespaces(first.pid, Namespace.PID)
                return self._furnish(first, stack)
            except BaseException:
                first.kill()
                raise

    def _furnish(self, first: FirstProcess, stack: contextlib.ExitStack) -> Built:
        self._groups.add(first.pid)
        first.own_groups()
        enter_namespaces(first.pid, Namespace.CGROUP)
        loopback.bring_up()
        began = time.monotonic_ns()
        check_sealed()
        seal_us = (time.monotonic_ns() - began) // 1000
        # CRIU opens names that the commit gives it. From a directory of the host they could lead out by "..".
        images = _close_at_end(stack, detached(self._directory / "images"))
        status = _close_at_end(
            stack, os.open(self._directory / "status", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        )
        network = _close_at_end(stack, os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC))
        number = free_number(frozenset())
        early = None if self._asks else self._start_criu(first, number, [images, network], stack)
        branch_root = self._branch_root.result()
        stack.callback(branch_root.release)
        branch_root.mount(first)
        held = [_close_at_end(stack, descriptor) for descriptor in branch_root.held]
        plan = self._plan.result()
        branch_root.prepare(self._directory / "images")
        ends = OpenedEndpoints()
        failing = stack.enter_context(contextlib.ExitStack())
        failing.callback(ends.close)
        until_resumed = stack.enter_context(contextlib.ExitStack())
        _have_segments_measured(until_resumed)
        peers = _prepare_network(plan, stack, ends)
        _let_nobody_reset(plan.inner_pairs, until_resumed)
        outlets = open_outlets(plan.outlets, stack, branch_root, plan.streams)
        logs = open_logs(plan.outside_names, stack, branch_root)
        if plan.connects is not None:
            _ask_about_connects(plan.connects)
        if early is None or outlets or free_number(plan.taken_pids) != number:
            # Seldom: it has to inherit what has just been opened, or has a number that the commit holds.
            if early is not None:
                early[1].exception()
                early[0].close()
            number = free_number(plan.taken_pids)
            early = self._start_criu(first, number, [images, network, *(o.inside for o in outlets)], stack)
        criu, joined = early
        # From here on names lead to files of the branch. Libraries and settings of a program with root's rights must not.
        try:
            criu.wait_until_loaded()
        except CriuDied as died:
            raise _failure(images, f"CRIU ended with status {died.status} before it began") from None
        branch_root.enter()
        socket.sethostname(plan.hostname)
        heard = [(one.master, one.log) for one in outlets if one.master is not None and one.log is not None]
        heard += zip(listen_outside(plan.outside_names, stack, branch_root), logs, strict=True)
        # What is not kept is closed with ``stack``, when the service runs: the kernel says FIN, or RST if there was more to read.
        inward = [
            peer
            for peer, is_inward in zip(peers, plan.inward, strict=True)
            if is_inward and not plan.closes_clients
        ]
        kept = [*(peer.fileno() for peer in inward), *held]
        first.hold([status, *kept, *(descriptor for pair in heard for descriptor in pair)])
        if plan.pager is not None:
            # Before CRIU begins: whatever becomes of the page daemon from here on, nobody sees a wrong page.
            first.hold_lifeline(plan.pager.lifeline)
        first.hold_owner(plan.owner)
        first.leave_room(room_on(status, plan.disk_share))
        first.give_up_capabilities()
        joined.result()  # with all that it restores
        root = _Restoring(
            plan, branch_root, first, images, network, outlets, self._host, self._moves, until_resumed
        ).run(criu)
        # Not before CRIU has ended: only then are the processes this one's children, and it leaves when it has none.
        first.become(root, len(kept))
        failing.pop_all()
        forged = {peer.getsockname()[1]: os.dup(peer.fileno()) for peer in inward}
        return Built(first.pid, root, forged, ends, seal_us)

    def _moves(self) -> None:
        self._moved_at = time.monotonic()

    def _start_criu(
        self, first: FirstProcess, number: int, keep: list[int], stack: contextlib.ExitStack
    ) -> tuple[CriuProcess, Future[None]]:
        """Start CRIU under a number with room behind it for its own few processes; also returns when it is in the groups."""
        first.set_last_number(number)
        criu = CriuProcess(self._tools, keep=keep, restores=True, fork=self._fork_of(first))
        stack.callback(criu.close)
        return criu, self._join(criu.pid, stack)

    def _fork_of(self, first: FirstProcess) -> Callable[[list[int]], RunningCriu] | None:
        if self._template is not None:
            return partial(self._template.fork, first.pid, self._groups.directories)
        if self._asks:  # it has to be this thread's child, below its filters
            return None

        def born_in_groups(keep: list[int]) -> RunningCriu:
            command = [str(self._tools.criu), "swrk", str(keep[0])]
            return first.execute(command, self._tools.environment(restores=True), keep)

        return born_in_groups


def _ask_about_connects(connects: Callable[[int], None]) -> None:
    """From here on this thread, CRIU and all that CRIU restores wait at each connect(2) until it is answered."""
    with contextlib.suppress(OSError):  # Linux before 5.19; or Relive itself runs under such a filter
        connects(ask_supervisor(CONNECT_FILTER))


def _close_at_end(stack: contextlib.ExitStack, descriptor: int) -> int:
    """Have a descriptor closed at the end, and return it."""
    stack.callback(os.close, descriptor)
    return descriptor


def _prepare_network(
    plan: BranchPlan, stack: contextlib.ExitStack, ends: OpenedEndpoints
) -> list[socket.socket]:
    """Give loopback the names and addresses, forge the other ends of the connections; they are closed with ``stack``.

    Those that shall go on are in ``ends`` too, with all else that stands for the outside.
    """
    loopback.add_names(plan.devices)
    loopback.add_addresses(sorted({*plan.addresses, *plan.outside.addresses}))
    peers = [
        stack.enter_context(forge_peer(connection, has_all=is_inward and connection.peer[1] in plan.answered))
        for connection, is_inward in zip(plan.connections, plan.inward, strict=True)
    ]
    for connection, peer in zip(plan.connections, peers, strict=True):
        name = connection.local, connection.peer
        if name in plan.outside.continued:
            ends.continued[name] = os.dup(peer.fileno())
    open_endpoints(plan.outside, plan.listening, ends)
    return peers


def _have_segments_measured(stack: contextlib.ExitStack) -> None:
    """Give connections that are brought back the segments they had; with ``stack`` closed they send the next bytes so.

    The kernel measures when a connection is made, in repair mode before it is told what the other end takes
    (tcp_connect_init()): 536 bytes. It does so again only where a packet may have another size than then
    (tcp_current_mss()). Small segments are slow, and take so much more memory that a receive buffer overflows which had room.
    """
    stack.callback(loopback.set_mtu, loopback.OWN_MTU)
    loopback.set_mtu(_MEANWHILE_MTU)


def _let_nobody_reset(pairs: Set[tuple[int, int]], stack: contextlib.ExitStack) -> None:
    """Keep connections within the commit alive while only one of their ends is back; ``stack`` ends that.

    CRIU makes one end after the other. What the first says of its own accord, such as the acknowledgement of the end that
    CRIU has it see, meets nobody, and the kernel would answer with a reset.
    """
    with contextlib.suppress(OSError):  # Linux before 5.9, or no BPF: mostly both are there soon enough
        if pairs:
            stack.callback(ResetsDropped(sorted(pairs)[:MOST_PAIRS]).close)


@dataclass(slots=True)
class _Restoring:
    """The request to CRIU, and what is done when it tells how far it is."""

    plan: BranchPlan
    branch_root: BranchRoot
    first: FirstProcess
    images: int
    network: int
    outlets: list[OpenOutlet]
    host: Mapping[str, str]
    on_moved: Callable[[], None]
    until_resumed: contextlib.ExitStack
    _root: int = 0

    def run(self, criu: CriuProcess) -> int:
        """Restore; returns the pid of the root."""
        limit = self.plan.limit
        try:
            with contextlib.closing(criu):
                request = rpc.Request(type=rpc.RESTORE, opts=self._options())
                answer = criu.ask(
                    request,
                    limit=Deadline(limit, io_counts, self.on_moved),
                    on_notification=self._notified,
                    on_descriptor=self._read_terminal,
                )
        except CriuTimedOut:
            raise RestoreTimedOut(
                "the restore was given up",
                cause=f"CRIU neither read nor wrote anything for {limit:g} s",
                remedy="raise `restore_limit` in relive.toml; a lock that the original holds can also cause this",
            ) from None
        except CriuDied as died:
            raise _failure(self.images, f"CRIU ended with status {died.status} in the middle") from None
        if not answer.success:
            raise _failure(self.images, answer.cr_errmsg)
        return answer.restore.pid

    def _options(self) -> rpc.Options:
        options = base_options(f"/proc/self/fd/{self.images}")
        options.inherit_fd.extend(rpc.InheritFd(key=outlet.key, fd=outlet.inside) for outlet in self.outlets)
        options.external.extend(outlet.key for outlet in self.outlets if outlet.master is not None)
        options.inherit_fd.extend(rpc.InheritFd(key=key, fd=self.network) for key in self.plan.networks)
        options.notify_scripts = True
        options.lazy_pages = self.plan.pager is not None
        self.branch_root.set_criu_options(options, self.network)
        return options

    def _read_terminal(self, master: int) -> None:
        """A terminal's other side was its engine's: what is shown there goes to the log of the output."""
        log = open_log(self.branch_root.io / "stdout.log")
        try:
            self.first.hold([master, log])
        finally:
            os.close(master)
            os.close(log)

    def _notified(self, script: str, pid: int) -> None:
        self._root = pid or self._root  # told before the processes run
        if script == "pre-resume":
            self.branch_root.files_opened()
            check_posix_locks(self.images)
            if self.plan.pager is not None:
                self.plan.pager.wait_until_held()
            self.branch_root.close(self._root)
            prove_confined(self._root, host=self.host, is_container=self.branch_root.is_container)
            if self.plan.clock_shift_ns is not None:
                shift_wall_clock(tree_of(self._root), self.plan.clock_shift_ns)
            if self.plan.remembered is not None:
                correct_numbers(tree_of(self._root), self.plan.remembered.result())
            if self.plan.rewinds:
                stop_before_it_runs(self._root)
            self.until_resumed.close()


def free_number(taken: frozenset[int]) -> int:
    """A number with room behind it for CRIU's own few processes, none of which the commit holds."""
    number = _FIRST_OWN_NUMBER
    while any(number <= pid <= number + _OWN_NUMBERS for pid in taken):
        number -= _OWN_NUMBERS
    return number


def _failure(images: int, sentence: str) -> RestoreFailed:
    explanation = explain(read_error_lines("criu.log", directory=images) or [sentence])
    return RestoreFailed(
        f"the commit was not restored: {explanation.what}",
        cause=f"CRIU says: {explanation.sentence}",
        remedy=explanation.remedy,
    )
