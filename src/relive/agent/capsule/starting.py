"""Starting a service in a capsule: PID, mount and IPC namespaces of its own, output into files.

Its files are the host's: it writes where it would write without Relive, and process 1 follows what it changes
(``native/init/track.h``), so that commits hold it. With ``FilesWay.OVERLAY`` its root is an overlay instead.
"""

from __future__ import annotations

import contextlib
import errno
import os
import pwd
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from relive.agent.capsule.bordering import SEALED, RaisedBorder, join_behind_border
from relive.agent.capsule.bytecode import compile_recorder
from relive.agent.capsule.ca_bundles import lay_bundles, plan_bundles, trusted_paths
from relive.agent.capsule.egress_recorder import make_authority, start_border
from relive.agent.capsule.file_tracking import prepare_following
from relive.agent.capsule.inherited import FIRST_SOCKET, InheritedDescriptors
from relive.agent.capsule.injection import with_recorder
from relive.agent.capsule.listener import open_front
from relive.agent.capsule.lives import Capsule
from relive.agent.capsule.memory_cgroup import MemoryGroup
from relive.checkpoint.criu import CriuTools
from relive.checkpoint.file_layers import LayerScanner, LayerSource
from relive.checkpoint.target import Target
from relive.checkpoint.tracked_files import FollowedFiles
from relive.config import Settings
from relive.errors import CapsuleStartFailed, ReliveError, TargetUndumpable
from relive.forkserver.rendezvous import PLACE_OF_ROOT
from relive.incidents.report.masking import FileMask
from relive.kernel import procfs
from relive.kernel.atomic_write import Durability, replace_file
from relive.kernel.disk_errors import disk_errors
from relive.kernel.mounts import Mount, make_private, make_slave, pivot_root, read_mounts
from relive.kernel.namespaces import Namespace
from relive.kernel.seccomp import ask_supervisor
from relive.model.capsule import BorderFacts, CapsuleFacts, CapsuleSpec, EgressWay, FilesWay
from relive.model.commit import LayerKind, TargetKind
from relive.model.life_paths import LifePaths
from relive.sandbox.border import remove_border
from relive.sandbox.rootfs import (
    INPROCESS_DIRECTORY,
    INPROCESS_FILES,
    RUN_DIRECTORY,
    CoveredPoint,
    RootBuilder,
    layer_directories,
    plan_points,
    share_host,
)
from relive.sandbox.service_start import assume_identity, fork_service, look_up_user
from relive.sandbox.spawn import (
    FileTracking,
    Front,
    SpawnChannel,
    become_init,
    spawn_first_process,
    standard_streams,
)

__all__ = ["StartedService", "capsule_target", "present_target", "start_service"]

_NAMESPACES = Namespace.PID | Namespace.MOUNT | Namespace.IPC
_START_LIMIT = 30.0  # [s]
_WHY_NO_LISTENER = {  # errno of seccomp(2)
    errno.EBUSY: "this command runs under a seccomp listener already, as in a capsule",
    errno.EINVAL: "this kernel cannot do it: Linux 5.19 is needed",
}
_RUN_SKIPPED = frozenset(
    {"relive", PLACE_OF_ROOT.name, "log", "udev", "systemd", "user"}
    | {"containers", "docker", "netns", "criu.kdat"}
)
_IN_MEMORY = ("/dev/shm", "/run")
_RUN_FILE_MOST = 1 << 20  # [bytes] larger files in /run are no rendezvous points


def _without_secrets(settings: Settings, spec: CapsuleSpec) -> CapsuleSpec:
    """What is written down of it: no environment, and placeholders for the secrets on its command line."""
    mask = FileMask.configured(settings)
    mask.learn_environment(spec.environment)
    return spec.model_copy(update={"environment": {}, "command": mask.words(spec.command)})


def capsule_target(settings: Settings, capsule: Capsule) -> Target:
    """The capsule as something to commit; keep it, since it remembers which files it has copied."""
    facts = capsule.facts
    files = _followed_files(settings, capsule) if facts.spec.files is FilesWay.HOST else None
    return Target(
        kind=TargetKind.CAPSULE,
        name=facts.spec.name,
        life=facts.life,
        root=facts.root,
        inside=True,
        command=facts.spec.command,
        sources=_overlay_sources(settings, capsule) if files is None else [],
        followed=files,
    )


def present_target(capsule: Capsule, target: Target) -> Target:
    """The target as it is now: a service whose first process has ended is the daemon that it left.

    Raises:
        TargetUndumpable: it left several, which are several trees to CRIU.
    """
    heads = capsule.heads()
    if len(heads) > 1 and capsule.facts.root not in heads:
        raise TargetUndumpable(
            f"{target.name} cannot be committed: its first process has ended and left {len(heads)} daemons",
            cause=f"processes {', '.join(map(str, heads))} have no common parent, and a commit is of one tree",
            remedy="start it with `relive run --daemons`, which keeps one process at the head of them",
        )
    target.root = capsule.lead_of(heads)
    if target.followed is not None:
        target.followed.root = target.root
    return target


def _followed_files(settings: Settings, capsule: Capsule) -> FollowedFiles:
    facts, paths = capsule.facts, capsule.paths
    return FollowedFiles(
        paths.files,
        Path(f"/proc/{facts.init}/root"),
        facts.root,
        points=_recent_points(facts.init, settings.home),
        memory_points=[point for point in _IN_MEMORY if Path(point).is_dir()],
        largest=settings.commit_file_limit,
        always=trusted_paths(paths.trust),
        data={Path(path): choice for path, choice in facts.spec.data.items()},
        apart=(str(settings.home), str(RUN_DIRECTORY), str(PLACE_OF_ROOT)),
    )


def _recent_points(init: int, home: Path) -> Callable[[], list[str]]:
    """Tells the points that process 1 of a capsule would have covered; what is mounted is mostly as at the commit before."""
    mounts: list[Mount] = []
    points: list[str] = []

    def look() -> list[str]:
        nonlocal mounts, points
        now = read_mounts(init)
        if now != mounts:
            mounts, points = now, [one.point for one in plan_points(now, home)]
        return points

    return look


def _overlay_sources(settings: Settings, capsule: Capsule) -> list[LayerSource]:
    facts, layers = capsule.facts, capsule.paths.layers
    sources = [
        LayerSource(
            point,
            LayerKind.OVERLAY,
            LayerScanner(layer_directories(layers, slot)[0]),
            _home_below(settings, point),
        )
        for point, slot in facts.points
    ]
    view = Path(f"/proc/{facts.init}/root")
    sources.append(LayerSource("/dev/shm", LayerKind.TMPFS, LayerScanner(view / "dev/shm")))
    trusted = {path.removeprefix("/run/") for path in trusted_paths(capsule.paths.trust)}
    run = LayerScanner(view / "run", largest=_RUN_FILE_MOST)
    sources.append(LayerSource("/run", LayerKind.TMPFS, run, _RUN_SKIPPED, frozenset(trusted)))
    return sources


def _home_below(settings: Settings, point: str) -> frozenset[str]:
    top = point.rstrip("/") + "/"
    home = str(settings.home)
    return frozenset({home.removeprefix(top)} if home.startswith(top) else ())


@dataclass(frozen=True, slots=True)
class StartedService:
    """What ``start_service`` made.

    Attributes:
        listener: see ``file_tracking.hold_listener``; the caller's. None: its files are not followed.
    """

    facts: CapsuleFacts
    listener: int | None


def start_service(
    settings: Settings,
    spec: CapsuleSpec,
    paths: LifePaths,
    group: MemoryGroup | None,
    handed: InheritedDescriptors,
) -> StartedService:
    """Start the service and write ``state.json``. Call it from a process with one thread.

    Raises:
        CapsuleStartFailed: the namespaces cannot be set up, or the command cannot be started.
        StoreError, DiskFull: the state cannot be written; the service was ended.
        UsageError: the user does not exist.
    """
    tools = CriuTools(settings.tools_path)
    tools.check()
    points = plan_points(read_mounts(), settings.home)
    starter = _Starter(
        settings,
        spec,
        paths,
        points,
        tools,
        group,
        look_up_user(spec.user),
        make_authority(paths, spec.name) if spec.opens_tls else None,
        _file_filter(tools) if spec.files is FilesWay.HOST else b"",
        handed,
    )
    if spec.files is FilesWay.HOST:
        prepare_following(settings, spec, paths)
    starter.prepare_streams()
    if spec.inside:
        compile_recorder(INPROCESS_FILES, spec.command, spec.environment)
    starter.front = open_front(spec, paths)
    channel = SpawnChannel()
    init: int | None = None
    border: BorderFacts | None = None
    raised = RaisedBorder()
    try:
        init = spawn_first_process(_NAMESPACES, lambda: starter.run(channel), channel)
        channel.theirs.close()
        report = channel.receive(time.monotonic() + _START_LIMIT)
        if spec.record_egress and report is not None:
            raised = RaisedBorder.model_validate(report)
            border = raised.border
            if border is not None and spec.egress is EgressWay.THROUGH:
                start_border(settings, spec, paths, init, border)
            channel.go()
            report = channel.receive(time.monotonic() + _START_LIMIT)
    except ReliveError:
        if init is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(init, signal.SIGKILL)
        if border is not None:
            remove_border(border)
        raise
    except OSError as error:
        raise CapsuleStartFailed(
            "the capsule's namespaces cannot be made", cause=str(error), remedy="run `relive doctor`"
        ) from error
    finally:
        channel.close()
        if starter.front is not None:
            starter.front.close()
    if report is None:
        os.kill(init, signal.SIGKILL)
        raise CapsuleStartFailed(
            "the capsule was not ready in time", cause=f"it took longer than {_START_LIMIT:g} s"
        )
    inside = int(str(report["root"]))
    stat = procfs.read_stat(init)
    facts = CapsuleFacts(
        spec=_without_secrets(settings, spec),
        life=paths.directory.name,
        init=init,
        init_started=stat.start_ticks if stat is not None else 0,
        root=next((pid for pid in procfs.children_of(init)), 0),
        root_inside=inside,
        started_wall_ns=time.time_ns(),
        points=[(point.point, point.slot) for point in points],
        is_owned=handed.line is not None,
        border=border,
        unrecorded=SEALED if spec.egress_if_possible and not spec.record_egress else raised.unrecorded,
    )
    listener = next(iter(channel.received), None)
    if listener is not None:
        os.set_inheritable(listener, False)  # recvmsg(2) leaves it open over execve(2)
    try:
        _write_state(paths, facts)
    except BaseException:
        os.kill(init, signal.SIGKILL)  # it would run on, and nobody would know of it
        raise
    return StartedService(facts, listener)


def _file_filter(tools: CriuTools) -> bytes:
    try:
        return subprocess.run([tools.init, "--filter"], stdout=subprocess.PIPE, check=True).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        raise CapsuleStartFailed(
            "the service's changes of files cannot be followed",
            cause=f"{tools.init} --filter: {error}",
            remedy="run `make setup`, which compiles it",
        ) from error


def _write_state(paths: LifePaths, facts: CapsuleFacts) -> None:
    with disk_errors("starting the service"):
        replace_file(paths.state, facts.model_dump_json(indent=2).encode(), durability=Durability.NONE)


class _Listener:
    """Hands the listener of the service's filter over, from the service's first process to process 1."""

    def __init__(self, code: bytes) -> None:
        self._code = code
        self._receiving, self._sending = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)

    def put_on(self) -> None:
        """In the service's process."""
        try:
            listener = ask_supervisor(self._code)
        except OSError as error:
            raise CapsuleStartFailed(
                "the service's changes of files cannot be followed",
                cause=_WHY_NO_LISTENER.get(error.errno or 0, f"seccomp(2): {error.strerror}"),
                remedy="start it with --files overlay; docs/files.md says what differs then",
            ) from None
        socket.send_fds(self._sending, [b"l"], [listener])

    def receive(self) -> int:
        """In process 1."""
        _, (listener, *_rest), _, _ = socket.recv_fds(self._receiving, 1, 1)
        return listener


@dataclass(slots=True)
class _Starter:
    """What process 1 and the service's first process do.

    Attributes:
        authority: certificate (PEM) that the service is to trust.
        file_filter: by which the service asks before it changes files, see ``kernel.seccomp``; empty with an overlay.
        front: the public port, which process 1 keeps; None where there is none.
    """

    settings: Settings
    spec: CapsuleSpec
    paths: LifePaths
    points: list[CoveredPoint]
    tools: CriuTools
    group: MemoryGroup | None
    user: pwd.struct_passwd | None
    authority: bytes | None
    file_filter: bytes
    handed: InheritedDescriptors
    front: Front | None = None

    def prepare_streams(self) -> None:
        """Make the output files, owned by the service's user, who may want to open /dev/stdout again."""
        for log in self.paths.logs:
            log.touch(mode=0o644)
            if self.user is not None:
                os.chown(log, self.user.pw_uid, self.user.pw_gid)

    def run(self, channel: SpawnChannel) -> NoReturn:
        """Process 1."""
        status = os.open(self.paths.status, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            spec = self.spec
            raised = join_behind_border(spec, self.group)
            if spec.record_egress:
                channel.send_values(raised.model_dump())
                channel.wait_for_go()  # the first connection of the service finds the recorder there, if it is in the way
            directory = os.open(self.paths.files, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            self._mount_root()
            standard_streams(None, None)
            environment = self._environment()
            listener = _Listener(self.file_filter)
            service = fork_service(
                self._command(),
                lambda: self.handed.own(environment),
                spec.directory,
                lambda: self._become_service(listener),
                range(FIRST_SOCKET, FIRST_SOCKET + self.handed.sockets),
            )
        except OSError as error:
            raise CapsuleStartFailed(
                "the capsule cannot be set up",
                cause=str(error),
                remedy="run `relive doctor`; docs/limits.md names file systems",
            ) from error
        following = None
        if self.file_filter:
            limit = self.settings.base_file_limit
            following = FileTracking(listener.receive(), directory, self.settings.home, limit)
        channel.send_values({"root": service}, [following.listener] if following is not None else [])
        become_init(
            *(self.tools.init, status, service),
            following=following,
            owner=self.handed.line,
            front=self.front,
        )

    def _become_service(self, listener: _Listener) -> None:
        """In the service's first process, which may still do everything."""
        self.handed.apply()
        if self.file_filter:
            listener.put_on()  # from here on it asks before it changes files, and nobody answers before it is executed
        assume_identity(self.user)

    def _mount_root(self) -> None:
        if self.spec.files is FilesWay.HOST:
            make_slave()
            if self.authority is not None:
                bundles = plan_bundles(self.spec.environment)[0]
                lay_bundles(bundles, self.authority, self.paths.trust, Path("/"))
            share_host(
                home=self.settings.home,
                tools=self.settings.tools_path,
                io=self.paths.io,
                rings=self.paths.rings.resolve(),
            )
            return
        make_private()
        builder = RootBuilder(self.paths.directory, home=self.settings.home, tools=self.settings.tools_path)
        for point in self.points:
            builder.cover(point)
        builder.share_host_devices()
        builder.share_run()
        builder.share_standard_streams(self.paths.io)
        builder.share_recorder(self.paths.rings.resolve())
        if self.authority is not None:
            bundles = plan_bundles(self.spec.environment)[0]
            lay_bundles(bundles, self.authority, self.paths.trust, builder.root)
        builder.hide_home()
        builder.mount_proc()
        pivot_root(builder.root)

    def _command(self) -> list[str]:
        if not self.spec.daemons:
            return self.spec.command
        # Isolated, and without the recorder: what it does is nothing of the service's.
        program = [os.path.realpath(sys.executable), "-I", "-S", str(INPROCESS_DIRECTORY / "relive_head.py")]
        return [*program, *self.spec.command]

    def _environment(self) -> dict[str, str]:
        environment = self.spec.environment
        if self.spec.inside:
            environment = with_recorder(environment, self.settings)
        if self.authority is not None:
            environment = environment | plan_bundles(environment)[1]
        if self.user is None:
            return environment
        name = self.user.pw_name
        return environment | {"HOME": self.user.pw_dir, "USER": name, "LOGNAME": name}
