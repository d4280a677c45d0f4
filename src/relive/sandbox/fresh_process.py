"""A service started anew in a sealed sandbox, without any commit: a fresh process over the host's files.

The sandbox is a branch's: PID, mount, network, IPC and UTS namespaces of its own, no way out, the host's files below an empty
layer, no capability by which root leaves it. What differs is its first process, which is executed instead of restored, and its
end: it lives no longer than the one who holds the ``FreshProcess``, however that dies.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import pwd
import shutil
import signal
import socket
import struct
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from relive.checkpoint.criu import CriuTools
from relive.config import Settings
from relive.errors import CapsuleStartFailed, PermissionMissing
from relive.kernel import libc, loopback, procfs
from relive.kernel.capabilities import WITHHELD
from relive.kernel.connects import CONNECT_FILTER
from relive.kernel.mounts import make_private, pivot_root, read_mounts
from relive.kernel.namespaces import Namespace, in_network
from relive.kernel.pidfds import has_ended, send_signal
from relive.kernel.seccomp import ask_supervisor
from relive.kernel.sockdiag import listening_ports
from relive.sandbox.branch import group_prefix
from relive.sandbox.cgroups import GroupLimits, Groups
from relive.sandbox.limits import limits_for
from relive.sandbox.overlay_files import Laying
from relive.sandbox.proc_lockdown import close_proc
from relive.sandbox.rootfs import RootBuilder, plan_points
from relive.sandbox.seal import Seal, check_sealed, read_seal
from relive.sandbox.service_start import assume_identity, fork_service, look_up_user
from relive.sandbox.spawn import SpawnChannel, become_init, spawn_first_process, standard_streams
from relive.sandbox.unfinished import new_place, sweep_unfinished

__all__ = ["FreshProcess", "FreshProcessSpec", "SandboxDirectory", "prepared_place", "start_fresh_process"]

_NAMESPACES = Namespace.PID | Namespace.MOUNT | Namespace.NETWORK | Namespace.IPC | Namespace.UTS
_START_LIMIT = 30.0  # [s]
_STATUS_LIMIT, _STATUS_POLL = 10.0, 0.002  # [s]
_PR_CAPBSET_DROP = 24
_CAPABILITY_VERSION = 0x20080522  # of capset(2): two sets of 32 bits
_CAPABILITIES = struct.Struct("<IIIIII")  # (effective, permitted, inheritable) of each set


@dataclass(frozen=True, slots=True)
class FreshProcessSpec:
    """What is started.

    Attributes:
        user: name of the user it runs as; None: the caller.
        addresses: addresses that must be local, beside those of loopback.
        memory: bytes that it may use; None: the share of the machine that a branch may have.
    """

    command: Sequence[str]
    directory: str
    environment: Mapping[str, str]
    user: str | None
    addresses: Sequence[str]
    hostname: str
    memory: int | None = None


@dataclass(frozen=True, slots=True)
class SandboxDirectory:
    """The directory of one sandbox.

    Attributes:
        laying: lays files over the host's, before it is started.
    """

    directory: Path
    laying: Laying

    @property
    def rings(self) -> Path:
        """Directory of the rings of its Python processes."""
        return self.directory / "rings"

    def log(self, stream: str) -> Path:
        """The file with its "stdout" or "stderr"."""
        return self.directory / "io" / f"{stream}.log"


@contextlib.contextmanager
def prepared_place(settings: Settings) -> Iterator[SandboxDirectory]:
    """A directory for one sandbox, removed at the end of the block; should the caller die, it is swept with unfinished branches.

    Raises:
        PermissionMissing: the caller is not root.
    """
    if os.geteuid() != 0:
        raise PermissionMissing(
            "a sandbox needs root", cause=f"this is uid {os.geteuid()}", remedy="run it with sudo"
        )
    with new_place(settings.branches) as directory:
        try:
            sweep_unfinished(settings.branches, "state.json")
            points = plan_points(read_mounts(), settings.home)
            yield SandboxDirectory(directory, Laying(points, directory / "layers"))
        finally:
            shutil.rmtree(directory, ignore_errors=True)


class FreshProcess:
    """A sandbox that runs.

    Attributes:
        init: host pid of its process 1; root: of the service, 0 when it has ended by now.
        network: a descriptor of its network namespace, which so outlives its processes.
        groups: its control groups.

    Args:
        refused: attempts to reach an address outside that were made to prove that there is no way.
    """

    def __init__(
        self, place: SandboxDirectory, init: int, lifeline: socket.socket, refused: int, groups: Groups
    ) -> None:
        self.place = place
        self.init = init
        self.groups = groups
        self._lifeline = lifeline
        self._refused = refused
        self._init_handle = os.pidfd_open(init)
        self.network = os.open(f"/proc/{init}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        self.root = next(iter(procfs.children_of(init)), 0)

    @property
    def wait_status(self) -> int | None:
        """Raw wait status of the service, None while it runs, or when nobody could note it.

        Process 1 notes it down, on the disk, a moment after the end; that is waited for.
        """
        until = time.monotonic() + _STATUS_LIMIT
        while True:
            # Both before the file is read: process 1 may note it down and end in between.
            is_over = not procfs.exists(self.root)
            is_last_look = not self._is_alive(_STATUS_POLL if is_over else 0) or time.monotonic() > until
            text = (self.place.directory / "status").read_text().split()
            if text:
                return int(text[0])
            if not is_over or is_last_look:
                return None

    def _is_alive(self, patience: float) -> bool:
        """Process 1 runs, and runs on for so many seconds."""
        return not has_ended(self._init_handle, patience)

    def seal(self) -> Seal:
        """The proof that nothing left; also when its processes have ended."""
        seal = in_network(self.network, lambda: read_seal("thread-self"))
        return seal.model_copy(update={"refused": seal.refused - self._refused})

    def listening_ports(self) -> set[int]:
        """TCP ports on which anything in it listens."""
        return in_network(self.network, listening_ports)

    def close(self) -> None:
        """End all that runs in it and let go. Doing it twice is no error."""
        if self.network < 0:
            return
        self._lifeline.close()
        send_signal(self._init_handle, signal.SIGKILL)
        has_ended(self._init_handle, 10.0)
        os.close(self._init_handle)
        os.close(self.network)
        self.network = -1
        self.groups.remove()


def start_fresh_process(
    settings: Settings,
    place: SandboxDirectory,
    spec: FreshProcessSpec,
    watch: Callable[[int, int | None], None],
) -> FreshProcess:
    """Start it. Call it from a process with one thread.

    Args:
        watch: called before the service is started, with the host pid of process 1, and the listener at which each connect(2) in
            the sandbox asks (``kernel.connects``), which becomes its own; None where the kernel gives none. It may start threads.

    Raises:
        CapsuleStartFailed: the namespaces cannot be set up, or the command cannot be executed.
        SealBroken: it would have a way out.
        UsageError: there is no such user.
    """
    tools = CriuTools(settings.tools_path)
    user = look_up_user(spec.user)
    for name in ("stdout", "stderr"):
        place.log(name).touch(mode=0o644)
        if user is not None:
            os.chown(place.log(name), user.pw_uid, user.pw_gid)
    (place.directory / "status").touch(mode=0o600)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    groups = Groups.make(group_prefix(settings) + place.directory.name)
    first = _First(settings, place, spec, tools, user, theirs, groups)
    channel = SpawnChannel()
    try:
        groups.limit(_limits(settings, spec))
        init = spawn_first_process(_NAMESPACES, lambda: first.run(channel), channel)
        theirs.close()
        channel.theirs.close()
        report = channel.receive(time.monotonic() + _START_LIMIT)
        if report is not None:
            watch(init, next(iter(channel.received), None))
            channel.go()
            report = channel.receive(time.monotonic() + _START_LIMIT)
        if report is None:
            raise CapsuleStartFailed("the sandbox was not ready in time", cause=f"{_START_LIMIT:g} s")
        return FreshProcess(place, init, ours, int(str(report["refused"])), groups)
    except OSError as error:
        ours.close()
        groups.remove()
        raise CapsuleStartFailed(
            "the sandbox's namespaces cannot be made", cause=str(error), remedy="run `relive doctor`"
        ) from error
    except BaseException:
        ours.close()  # its process 1 ends by that
        groups.remove()
        raise
    finally:
        theirs.close()
        channel.close()


def _limits(settings: Settings, spec: FreshProcessSpec) -> GroupLimits:
    return limits_for(
        given=spec.memory,
        held=0,
        machine=os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
        share=settings.branch_memory,
        threads=0,
        processes=settings.branch_processes,
    )


@dataclass(frozen=True, slots=True)
class _First:
    """What process 1 does."""

    settings: Settings
    place: SandboxDirectory
    spec: FreshProcessSpec
    tools: CriuTools
    user: pwd.struct_passwd | None
    lifeline: socket.socket
    groups: Groups

    def run(self, channel: SpawnChannel) -> NoReturn:
        spec = self.spec
        status = os.open(self.place.directory / "status", os.O_WRONLY | os.O_CLOEXEC)
        try:
            self.groups.add(0)  # this process, and so the service
            loopback.bring_up()
            check_sealed()
            refused = read_seal("thread-self").refused
            for address in spec.addresses:
                loopback.add_address(address)
            self._mount_root()
            socket.sethostname(spec.hostname)
            standard_streams(None, None)
            _ask_about_connects(channel)
            channel.wait_for_go()
            service = fork_service(spec.command, lambda: spec.environment, spec.directory, self._become)
        except OSError as error:
            raise CapsuleStartFailed(
                "the sandbox cannot be set up", cause=str(error), remedy="run `relive doctor`"
            ) from error
        channel.send_values({"root": service, "refused": refused})
        become_init(self.tools.init, status, service, self.lifeline.fileno())

    def _mount_root(self) -> None:
        make_private()
        directory, settings = self.place.directory, self.settings
        builder = RootBuilder(
            directory, home=settings.home, tools=settings.tools_path, devices=False, volatile=True
        )
        for point in self.place.laying.points:
            builder.cover(point)
        self.place.laying.check(builder.root)
        builder.own_devices()
        builder.own_run()
        builder.share_standard_streams(directory / "io")
        builder.share_recorder(self.place.rings)
        builder.hide_home()
        builder.mount_proc()
        pivot_root(builder.root)
        close_proc()

    def _become(self) -> None:
        for number in WITHHELD.values():
            libc.call("prctl", _PR_CAPBSET_DROP, number, 0, 0, 0)
        assume_identity(self.user)
        _give_up_withheld()


def _ask_about_connects(channel: SpawnChannel) -> None:
    """Have each connect(2) of what is started from here on wait until it is answered, and hand the listener over."""
    listener = None
    with contextlib.suppress(OSError):  # Linux before 5.19; or Relive itself runs under such a filter
        listener = ask_supervisor(CONNECT_FILTER)
    channel.send_values({}, [listener] if listener is not None else [])
    if listener is not None:
        os.close(listener)


def _give_up_withheld() -> None:
    """Take the withheld capabilities from this process; with its bounding set limited, no program it executes gets them again."""
    header = struct.pack("<II", _CAPABILITY_VERSION, 0)
    held = ctypes.create_string_buffer(_CAPABILITIES.size)
    libc.call("capget", header, held)
    words = list(_CAPABILITIES.unpack(held.raw))
    for number in WITHHELD.values():
        first = 3 * (number // 32)
        for index in range(first, first + 3):
            words[index] &= ~(1 << number % 32)
    libc.call("capset", header, _CAPABILITIES.pack(*words))
