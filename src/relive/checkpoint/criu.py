"""One conversation with CRIU: ``criu swrk`` started in the right namespaces, asked one thing through its RPC.

CRIU's own text is only read when something failed, to explain it (see ``criu_errors``).
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, Self

from google.protobuf.message import DecodeError

from relive.checkpoint import criu_rpc_pb2 as rpc
from relive.checkpoint.kernel_cache import kerndat_files, place_kerndat
from relive.errors import ToolMissing
from relive.kernel import procfs
from relive.kernel.namespaces import Namespace, namespace_id
from relive.kernel.pidfds import open_process, send_signal
from relive.kernel.read_early import begin_reading_file

__all__ = [
    "Aside",
    "CriuDied",
    "CriuProcess",
    "CriuTimedOut",
    "CriuTools",
    "Deadline",
    "Notified",
    "RunningCriu",
    "base_options",
]

_DESCRIPTORS_MOST = 4  # one comes
_LOADED_WITHIN = 10.0  # [s]
_LOOKS = 20  # whether anything moves, within the limit
_ANSWER_MOST = 1 << 20  # [bytes] CRIU sends each answer as one packet


@dataclass(frozen=True, slots=True)
class CriuTools:
    """The programs that set-up made. Paths must be the same inside a capsule as outside."""

    directory: Path

    @property
    def criu(self) -> Path:
        """The CRIU that works on this host."""
        return self.directory / "criu"

    @property
    def init(self) -> Path:
        """Process 1 of capsules and branches."""
        return self.directory / "relive-init"

    @property
    def supervisor(self) -> Path:
        """Has an agent that died replaced."""
        return self.directory / "relive-supervisor"

    @property
    def front(self) -> Path:
        """Keeps the public port of a watched service open."""
        return self.directory / "relive-front"

    @property
    def keeper(self) -> Path:
        """Holds the connections that the recorder at a capsule's border carries."""
        return self.directory / "relive-keeper"

    @property
    def enter(self) -> Path:
        """The program that runs a command in a branch."""
        return self.directory / "relive-enter"

    @property
    def watchdog(self) -> Path:
        """The program that resumes a target left stopped."""
        return self.directory / "relive-watchdog"

    @property
    def prlimit_shim(self) -> Path:
        """Library that lets CRIU read the limits of other users' processes without CAP_SYS_RESOURCE."""
        return self.directory / "prlimit_shim.so"

    @property
    def tracker(self) -> Path:
        """The program that copies memory ahead of a commit."""
        return self.directory / "relive-tracker"

    @property
    def micro(self) -> Path:
        """The program that takes what has changed since a commit, for the next one on top of it."""
        return self.directory / "relive-micro"

    @property
    def rewind(self) -> Path:
        """Keeps what a branch was, and puts that back."""
        return self.directory / "relive-rewind"

    @property
    def pagemap_shim(self) -> Path:
        """Library that lets CRIU leave out pages that were copied ahead."""
        return self.directory / "pagemap_shim.so"

    @property
    def smaps_shim(self) -> Path:
        """Library that lets CRIU read the flags of mappings without a look at each of their pages."""
        return self.directory / "smaps_shim.so"

    @property
    def tcp_dump_shim(self) -> Path:
        """Library that keeps a dump from stalling TCP connections."""
        return self.directory / "tcp_dump_shim.so"

    @property
    def wait_shim(self) -> Path:
        """Library that keeps the death of one process in a dump from killing another."""
        return self.directory / "wait_shim.so"

    @property
    def tcp_restore_shim(self) -> Path:
        """Library that lets CRIU restore TCP connections within a tree that hold unsent bytes."""
        return self.directory / "tcp_restore_shim.so"

    @property
    def mapped_shim(self) -> Path:
        """Library that lets CRIU find the files that processes of a branch have mapped."""
        return self.directory / "mapped_shim.so"

    @property
    def pages_shim(self) -> Path:
        """Library that has CRIU read the memory of what it restores with several threads."""
        return self.directory / "pages_shim.so"

    @property
    def template_shim(self) -> Path:
        """Library that makes CRIU a template of itself, for many branches of one commit."""
        return self.directory / "template_shim.so"

    @property
    def version(self) -> str:
        """The version of CRIU that set-up noted in ``criu.origin`` (lines KEY=VALUE); "unknown" where it did not."""
        try:
            lines = (self.directory / "criu.origin").read_text().splitlines()
        except OSError:
            return "unknown"
        return dict(line.partition("=")[::2] for line in lines).get("version", "unknown")

    @property
    def plugins(self) -> Path:
        """CRIU's plugins; without the directory it does not dump."""
        return self.directory / "plugins"

    @property
    def required(self) -> tuple[Path, ...]:
        """All without which nothing is committed or restored."""
        programs = (self.criu, self.init, self.enter, self.watchdog, self.supervisor, self.front)
        shims = (
            self.prlimit_shim,
            self.tcp_dump_shim,
            self.wait_shim,
            self.tcp_restore_shim,
            self.template_shim,
            self.pages_shim,
            self.mapped_shim,
        )
        return (*programs, *shims, self.plugins)

    def check(self) -> None:
        """Raise ToolMissing when one of them is absent."""
        for path in self.required:
            if not path.exists():
                raise ToolMissing(
                    f"{path} is missing",
                    cause=f"set-up did not put the programs that Relive drives into {self.directory}",
                    remedy="with another RELIVE_HOME, set RELIVE_TOOLS to where they are; else run `make setup`",
                )

    def begin_reading(self) -> None:
        """Have the disk begin to read what a restore needs of this, in the order in which it does; nothing is waited for."""
        shims = (self.prlimit_shim, self.tcp_restore_shim, self.pages_shim)
        for path in (self.init, *kerndat_files(self.directory), self.criu, *shims, *self.plugins.iterdir()):
            begin_reading_file(path)

    def environment(
        self, left_out: int | None = None, *, restores: bool = False, of_branch: bool = False
    ) -> dict[str, str]:
        """The environment CRIU runs in.

        Args:
            left_out: descriptor to which it writes what it does not dump, as it was copied ahead; None: it dumps all.
            restores: it is to restore, not to dump.
            of_branch: what it dumps is a branch.
        """
        own = [self.tcp_restore_shim, self.pages_shim] if restores else [self.tcp_dump_shim, self.wait_shim]
        shims = [self.prlimit_shim, *own]
        made = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "CRIU_LIBS_DIR": str(self.plugins)}
        if left_out is not None:
            # It passes on what mapped_shim answers, which asks the kernel itself.
            shims += [self.pagemap_shim, self.smaps_shim]
            made["RELIVE_LEFT_OUT"] = str(left_out)
        if of_branch:
            shims.append(self.mapped_shim)
        return made | {"LD_PRELOAD": ":".join(map(str, shims))}


class RunningCriu(Protocol):
    """What ``CriuProcess`` uses of ``subprocess.Popen``."""

    @property
    def pid(self) -> int:
        """On the host."""

    def wait(self, timeout: float | None = None) -> int:
        """Its status, once it has ended; raises subprocess.TimeoutExpired before."""

    def kill(self) -> None:
        """End it."""


class CriuDied(Exception):
    """CRIU ended without an answer. ``status`` is as subprocess gives it: negative for a signal."""

    def __init__(self, status: int | None) -> None:
        super().__init__(status)
        self.status = status


class CriuTimedOut(Exception):
    """CRIU gave no answer in time; it has been killed."""


class Deadline:
    """When CRIU is given up: after so many seconds, or, where it can be seen whether anything moves, so many in which nothing did.

    Args:
        moved: returns something else than before if anything has moved since.
        on_moved: called when that was so.
    """

    def __init__(
        self,
        limit: float,
        moved: Callable[[], object] | None = None,
        on_moved: Callable[[], None] = lambda: None,
    ) -> None:
        self._limit, self._moved, self._on_moved = limit, moved, on_moved
        self._until = time.monotonic() + limit
        self._seen = moved() if moved is not None else None

    @property
    def wait(self) -> float:
        """Seconds to wait before ``has_passed`` is worth asking."""
        left = max(0.0, self._until - time.monotonic())
        return left if self._moved is None else min(left, self._limit / _LOOKS)

    def has_passed(self) -> bool:
        """Time to give up."""
        if self._moved is not None and (now := self._moved()) != self._seen:
            self._seen, self._until = now, time.monotonic() + self._limit
            self._on_moved()
        return time.monotonic() >= self._until


Notified = Callable[[str, int], None]
"""Called with the name of a CRIU notification (such as "post-dump") and the pid it is about, 0 if none.

CRIU waits meanwhile; an exception makes CRIU give up in an orderly way and then comes out of ``ask``.
"""

Aside = tuple[int, Callable[[], None]]
"""A descriptor, and what to call when it becomes readable."""


def base_options(images: str) -> rpc.Options:
    """Options that every dump and restore has; ``images`` is a path as CRIU sees it."""
    options = rpc.Options(images_dir_fd=-1, images_dir=images)
    options.log_level = 2
    options.log_file = "criu.log"
    options.manage_cgroups_mode = rpc.IGNORE
    # The other methods cost 15 to 70 ms of pause and may leave firewall rules behind (docs/limits.md).
    options.network_lock = rpc.SKIP
    options.tcp_established = True
    options.ext_unix_sk = True
    options.shell_job = True
    options.file_locks = True
    # For a deleted file that has another name CRIU makes a name beside it for the time of the dump; it is captured then.
    options.link_remap = True
    return options


class CriuProcess:
    """CRIU, started and waiting for the one request it is for. Closing it never leaves a CRIU behind.

    Starting takes a few milliseconds in which others may work: begin early, ask late.
    """

    def __init__(
        self,
        tools: CriuTools,
        *,
        inside: int | None = None,
        inside_ipc: bool = False,
        keep: Iterable[int] = (),
        left_out: int | None = None,
        restores: bool = False,
        of_branch: bool = False,
        fork: Callable[[list[int]], RunningCriu] | None = None,
    ) -> None:
        """Start CRIU in the caller's namespaces.

        Args:
            inside: pid whose mount, PID and network namespaces CRIU enters first; None: the caller's, as its children get them.
            inside_ipc: it enters that process's IPC namespace too, and then leaves that out of a dump.
            keep: descriptors CRIU inherits under the same number.
            left_out, restores, of_branch: see ``CriuTools.environment``. Of a branch it enters the UTS namespace, too: its name is
                the branch's own, and in no commit.
            fork: makes a running CRIU with these descriptors, on the first of which it converses; None: the program is started.

        Raises:
            ToolMissing: it could not be started. OSError: ``fork`` raised it.
        """
        place_kerndat(tools.directory)
        self._is_below = inside is not None and fork is None
        self._ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            kept = [theirs.fileno(), *keep, *([left_out] if left_out is not None else [])]
            with theirs:
                if fork is not None:
                    self._process: RunningCriu = fork(kept)
                else:
                    environment = tools.environment(left_out, restores=restores, of_branch=of_branch)
                    self._process = _spawn(tools, kept, inside, inside_ipc, of_branch, environment)
        except BaseException:
            self._ours.close()
            raise

    @property
    def pid(self) -> int:
        """Host pid of the process to kill should the caller be unable to."""
        return self._process.pid

    @property
    def criu_pid(self) -> int:
        """Host pid of CRIU itself; to be asked when it has begun to converse."""
        # nsenter's only child, where it is started by that.
        return next(iter(procfs.children_of(self.pid)), self.pid) if self._is_below else self.pid

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def wait_until_loaded(self) -> None:
        """Return when CRIU has begun to run: all its libraries and settings are read, and none is read any more.

        Raises:
            CriuDied: it ended instead. CriuTimedOut: it did not begin.
        """
        asked = rpc.Request(type=rpc.VERSION, keep_open=True)
        _converse(self._ours, self._process, asked, Deadline(_LOADED_WITHIN), None, None, None)

    def close(self) -> None:
        """Wait for it to end. Doing it twice is no error."""
        self._ours.close()
        _reap(self._process)

    def ask(
        self,
        request: rpc.Request,
        *,
        limit: float | Deadline,
        on_notification: Notified | None = None,
        on_answer: Callable[[rpc.Answer], None] | None = None,
        aside: Aside | None = None,
        on_descriptor: Callable[[int], None] | None = None,
    ) -> rpc.Answer:
        """Send the request, serve the notifications, return the final answer.

        Args:
            limit: seconds after which CRIU is given up, or when; its end releases whatever it held stopped.
            on_notification: see ``Notified``.
            on_answer: called with the answer as soon as it is there, before CRIU has ended.
            aside: what else to wait for, and to call each time it becomes readable, while CRIU works; an exception of it
                makes CRIU give up at its next notification.
            on_descriptor: called with a descriptor that came with a notification, before that is served, and which belongs
                to it then: the master side of a terminal whose master nobody of the restored processes has.

        Raises:
            CriuDied: it ended before answering.
            CriuTimedOut: ``limit`` passed.
        """
        deadline = limit if isinstance(limit, Deadline) else Deadline(limit)
        answer = _converse(
            self._ours, self._process, request, deadline, on_notification, aside, on_descriptor
        )
        if on_answer is not None:
            on_answer(answer)
        return answer


def _spawn(
    tools: CriuTools,
    keep: list[int],
    inside: int | None,
    inside_ipc: bool,
    inside_uts: bool,
    environment: dict[str, str],
) -> subprocess.Popen[bytes]:
    """``keep``: descriptors it inherits; on the first of them it converses."""
    command = [str(tools.criu), "swrk", str(keep[0])]
    if inside is not None:
        kinds = ["--mount", "--pid", *(["--ipc"] if inside_ipc else []), *(["--uts"] if inside_uts else [])]
        if namespace_id(inside, Namespace.NETWORK) != namespace_id("self", Namespace.NETWORK):
            # A branch makes one of its own: what the commit's looked like is in its sockets.
            kinds.append("--net")
        command = ["nsenter", f"--target={inside}", *kinds, "--", *command]
    try:
        return subprocess.Popen(
            command,
            pass_fds=keep,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            start_new_session=True,  # a Ctrl-C at the terminal must not reach CRIU in mid-dump
        )
    except OSError as error:
        raise ToolMissing(
            f"cannot start {command[0]}", cause=str(error), remedy="run `make setup`"
        ) from error


def _converse(
    channel: socket.socket,
    process: RunningCriu,
    request: rpc.Request,
    deadline: Deadline,
    on_notification: Notified | None,
    aside: Aside | None,
    on_descriptor: Callable[[int], None] | None,
) -> rpc.Answer:
    try:
        channel.send(request.SerializeToString())
    except OSError:  # it has been killed since it was started
        raise _death_of(process) from None
    failure: BaseException | None = None
    while True:
        try:
            while not _wait(channel, deadline, aside if failure is None else None):
                assert aside is not None
                aside[1]()
        except CriuTimedOut:
            raise
        except BaseException as error:
            failure = error
            continue
        answer = _receive(channel, process, on_descriptor)
        if answer.type != rpc.NOTIFY:
            if failure is not None:
                raise failure
            return answer
        if on_notification is not None and failure is None:
            try:
                on_notification(answer.notify.script, answer.notify.pid)
            except BaseException as error:
                failure = error
        reply = rpc.Request(type=rpc.NOTIFY, notify_success=failure is None)
        try:
            channel.send(reply.SerializeToString())
        except OSError:
            raise failure or _death_of(process) from None


def _wait(channel: socket.socket, deadline: Deadline, aside: Aside | None) -> bool:
    """Wait for CRIU's next word; False when there is something aside first."""
    awaited: list[socket.socket | int] = [channel] if aside is None else [channel, aside[0]]
    while True:
        readable, _, _ = select.select(awaited, [], [], deadline.wait)
        if readable:
            return channel in readable
        if deadline.has_passed():
            raise CriuTimedOut


def _receive(
    channel: socket.socket, process: RunningCriu, on_descriptor: Callable[[int], None] | None
) -> rpc.Answer:
    try:
        data, descriptors, _, _ = socket.recv_fds(channel, _ANSWER_MOST, _DESCRIPTORS_MOST)
    except ConnectionError:
        data, descriptors = b"", []
    for descriptor in descriptors:
        os.set_inheritable(descriptor, False)
        (on_descriptor or os.close)(descriptor)
    if not data:
        raise _death_of(process)
    try:
        return rpc.Answer.FromString(data)
    except DecodeError:
        raise CriuDied(None) from None


def _death_of(process: RunningCriu) -> CriuDied:
    """What it ended with; its end may be a moment behind that of the line to it."""
    try:
        return CriuDied(process.wait(timeout=5))
    except subprocess.TimeoutExpired:
        return CriuDied(None)


def _reap(process: RunningCriu) -> None:
    """Wait for the process to end by itself, then kill it and its children; never leaves one behind."""
    try:
        process.wait(timeout=5)
    except subprocess.TimeoutExpired:
        # nsenter's child is CRIU itself: it must not survive as an orphan that still traces the target.
        # What ends by itself in this moment is no reason to leave the rest.
        with contextlib.suppress(OSError):
            for child in procfs.children_of(process.pid):
                handle = open_process(child)
                if handle is not None:
                    if child in procfs.children_of(process.pid):  # asked while the handle holds it
                        send_signal(handle, signal.SIGKILL)
                    os.close(handle)
        process.kill()
        process.wait()
