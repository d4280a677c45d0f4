"""Taking a commit: freeze, copy, resume; ``dumped`` makes it durable afterwards, with the target running again.

1. Files are copied once while the target runs (``layers``); with ``pre_copy`` memory, too (``copied_ahead``).
2. The watchdog is armed, the failure watch steps aside, CRIU starts.
3. On CRIU's "pre-dump" the gate of the recording is closed, so that no request byte moves during the dump.
4. CRIU freezes the tree and writes its images. Meanwhile files that changed since step 1 are copied again: from the
   moment at which CRIU opens ``files.img``, which is right after the freeze; at the latest on "post-dump".
5. CRIU resumes the tree; the gate opens. What the target felt is the time between 3 and 5.
   With ``micro_commits`` 2 to 5 are its own, wherever it can take the commit on top of the one before.
6. ``Capture.store`` hashes, fsyncs and writes the manifest. Only now is the commit durable.
"""

from __future__ import annotations

import contextlib
import errno
import os
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from relive.checkpoint import criu_rpc_pb2 as rpc
from relive.checkpoint.copied_ahead import CopiedAhead
from relive.checkpoint.criu import CriuDied, CriuProcess, CriuTimedOut, CriuTools, base_options
from relive.checkpoint.criu_errors import NOT_THE_TARGET, Explanation, explain, is_harmless, read_error_lines
from relive.checkpoint.dumped import Capture
from relive.checkpoint.file_layers import ScannedEntry, Source
from relive.checkpoint.inotify_watches import watched_paths
from relive.checkpoint.micro_commits import MicroCommits
from relive.checkpoint.open_files import OpenFiles
from relive.checkpoint.open_paths import open_paths, shared_writable_paths
from relive.checkpoint.target import (
    Contained,
    Target,
    check_dumpable,
    terminals_of,
)
from relive.checkpoint.watchdog import Watchdog, WatchdogPeriod
from relive.config import Settings
from relive.errors import (
    CommitFailed,
    CommitTimedOut,
    DiskFull,
    ProcessGone,
    ReliveError,
    TargetUndumpable,
)
from relive.images import criu_images_pb2 as pb
from relive.images.image_file import read_entries
from relive.images.inode_numbers import write_inode_numbers, written_files
from relive.images.locks import add_posix_locks
from relive.images.sockets import read_files
from relive.kernel import procfs
from relive.kernel.filelocks import PosixLock, held_posix_locks
from relive.kernel.inotify import AwaitedName
from relive.kernel.namespaces import Namespace, holds_ipc
from relive.model.advance import Advance
from relive.model.commit import (
    Cursor,
    TargetKind,
    Trigger,
)
from relive.store import Staging, Store
from relive.store.disk_errors import disk_full, used_up
from relive_inprocess.relive_recorder.scrub import Scrubber

__all__ = ["NoRequestGate", "RequestGate", "StoppedBy", "capture"]

_FIRST_AFTER_FREEZE = (
    "files.img"  # CRIU opens its shared images (cr_glob_imgset_open) once all threads stand still
)
_LINKS_MADE = "remap-fpath.img"
_NO_SPACE_ERRNOS = (errno.ENOSPC, errno.EDQUOT)
_STATS = "stats-dump"
_NO_SPACE = "no space left for the commit; the service runs on"


class RequestGate(Protocol):
    """What keeps requests from reaching the target while it is committed."""

    def close(self) -> Cursor | None:
        """Let nothing more through; returns how far the recording had come. None: nothing is recorded."""

    def settle(self, cursor: Cursor) -> Cursor:
        """Called while the target stands still, well after ``close``: note which answers had left it by now."""

    def open(self, capture: str | None) -> None:
        """Let requests through again; ``capture`` names the commit, None if it failed."""


class NoRequestGate:
    """For targets whose requests are not recorded."""

    def close(self) -> Cursor | None:
        """Nothing to close."""
        return None

    def settle(self, cursor: Cursor) -> Cursor:
        """Nothing to note."""
        return cursor

    def open(self, capture: str | None) -> None:
        """Nothing to open."""


@dataclass(frozen=True, slots=True)
class StoppedBy:
    """A process stands before its death while the commit is taken; pids as the host sees them.

    Attributes:
        signal: a fatal one that is withheld; None: it exits.
    """

    signal: int | None
    pid: int
    thread: int


def capture(
    target: Target,
    trigger: Trigger,
    *,
    settings: Settings,
    store: Store,
    watchdog: Watchdog,
    gate: RequestGate | None = None,
    stopped: StoppedBy | None = None,
    name: str | None = None,
    advance: Advance | None = None,
    micro: MicroCommits | None = None,
) -> Capture:
    """Take a commit of a target, which runs on afterwards whatever happens (unless it was stopped before).

    ``name``, of 32 hexadecimal digits, is what the manifest calls the capture, by which it can be found
    (``Store.captured_as``); it is given to one commit only. Without it is a random one. ``advance`` is told how far it is, also
    while it is stored. ``micro`` takes it on top of the one before where it can.

    Raises:
        TargetUndumpable: the target holds something that cannot be saved.
        CommitTimedOut: it took longer than ``settings.commit_limit``.
        CommitFailed: CRIU failed otherwise.
        ProcessGone: the target ended meanwhile.
        PermissionMissing, ToolMissing, DiskFull: as they say.
    """
    tools = CriuTools(settings.tools_path)
    tools.check()
    check_dumpable(target.root)
    begun = procfs.read_stat(target.root)
    staging = store.stage()
    dump = _Dump(
        target, settings, tools, staging, gate or NoRequestGate(), stopped, name, advance or Advance(), micro
    )
    try:
        with _disk_full("copying files", staging.directory):
            dump.copy_ahead()
            with watchdog.watching(target.root, settings.commit_limit) as watch:
                try:
                    if not dump.run_micro(watch):
                        dump.run_twice(watch)
                except CommitFailed:
                    # What CRIU then says is only that it was ended.
                    if watch.stepped_in:
                        raise _given_up(target, settings) from None
                    raise
            if watch.stepped_in:
                raise _given_up(target, settings)
            return dump.result(trigger)
    except BaseException as error:
        dump.forget_memory()
        if micro is not None:
            micro.forget("the commit before it failed")
        staging.discard()
        _forget_copies(target)
        if isinstance(error, CommitFailed) and _has_ended(target, begun):
            raise _ended(target, error) from error
        raise


def _has_ended(target: Target, begun: procfs.ProcessStat | None) -> bool:
    return begun is None or not procfs.is_same_process(target.root, begun.start_ticks)


def _ended(target: Target, error: CommitFailed) -> ProcessGone:
    return ProcessGone(
        f"{target.name} ended while it was being committed",
        cause=error.cause,
        remedy="what was committed before is kept (`relive log`)",
    )


def _without_secrets(settings: Settings, command: list[str]) -> list[str]:
    return Scrubber(settings.secret_patterns, settings.secret_names).words(command)


def _given_up(target: Target, settings: Settings) -> CommitTimedOut:
    return CommitTimedOut(
        f"the commit of {target.name} was given up",
        cause=f"it took longer than {settings.commit_limit:g} s; the watchdog resumed the service",
        remedy="raise `commit_limit` in relive.toml if the service's memory is large",
    )


def _forget_copies(target: Target) -> None:
    """Copies that were staged for a failed commit are gone; what the store has stays known."""
    for source in target.sources:
        source.forget_lost_copies()
    if target.followed is not None:
        target.followed.forget_lost_copies()


@contextlib.contextmanager
def _disk_full(what: str, where: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno not in _NO_SPACE_ERRNOS:
            raise CommitFailed(
                f"failed while {what}", cause=str(error), remedy="run `relive doctor`"
            ) from error
        raise disk_full(_NO_SPACE, where, error) from error


class _IpcAppeared(Exception):
    """System V objects came into being between the look for them and the freeze; this time they are dumped."""


class _PagesMissing(Exception):
    """Pages were left out of the dump of which there is no copy; this time all are dumped."""


class _Dump:
    """One run of CRIU and what happens around it."""

    def __init__(
        self,
        target: Target,
        settings: Settings,
        tools: CriuTools,
        staging: Staging,
        gate: RequestGate,
        stopped: StoppedBy | None,
        name: str | None,
        advance: Advance,
        micro: MicroCommits | None,
    ) -> None:
        self._target = target
        # What stands before its fatal signal is not made to run; a container has namespaces to be saved.
        self._micro = micro if stopped is None and target.contained is None else None
        self._pause_us: int | None = None
        self._advance = advance
        self._settings = settings
        self._tools = tools
        self._staging = staging
        self._gate = gate
        self._stopped = stopped
        self._name = name or uuid.uuid4().hex
        self._began_ns = time.monotonic_ns()
        self._gate_closed = False
        self._cursor: Cursor | None = None
        self._taken = (0, 0)
        self._is_whole = False
        self._layers: list[tuple[Source, list[ScannedEntry]]] = []
        self._locks: list[PosixLock] = []
        self._memory: CopiedAhead | None = None
        self._looked_frozen = False
        self._open_files = self._new_open_files()
        is_process = target.kind is TargetKind.PROCESS
        self._terminals = terminals_of(target.root) if is_process else []
        # An empty IPC namespace costs 2 ms of pause to save; a branch gets an empty one anyway.
        self._leaves_out_ipc = (
            target.inside and target.kind is TargetKind.CAPSULE and not holds_ipc(target.root)
        )
        self._watched = watched_paths(target.root) if not is_process else []
        self._root_inside = procfs.innermost_pid(target.root) or target.root

    def _new_open_files(self) -> OpenFiles | None:
        return None if self._target.holds_files else OpenFiles(self._settings.open_file_limit)

    def copy_ahead(self) -> None:
        """Copy what can be copied while the target runs."""
        # A process that stands before its fatal signal is not made to run for this.
        if self._settings.pre_copy and self._stopped is None and self._micro is None:
            with contextlib.suppress(OSError):  # then CRIU dumps all of it
                self._memory = CopiedAhead(
                    self._tools,
                    self._staging.directory / "memory",
                    self._target.root,
                    inside=self._target.inside,
                    is_capsule=self._target.kind is TargetKind.CAPSULE,
                )
        self._copy_files()
        if self._memory is not None:
            self._memory.wait(self._settings.commit_limit)

    def forget_memory(self) -> None:
        """What was copied of it is not needed."""
        memory, self._memory = self._memory, None
        if memory is not None:
            memory.discard()

    def _copy_files(self) -> None:
        """Copy what changed since the last commit, while the target runs."""
        if self._target.followed is not None:
            copies = self._staging.files / "followed"
            copies.mkdir(exist_ok=True)
            self._target.followed.copy_changed(copies, self._advance)
        self._scan()

    def _scan(self) -> None:
        shared = shared_writable_paths(self._target.root) if self._target.sources else set()
        opened = open_paths(self._target.root) if self._target.sources else set()
        self._layers = []
        for number, source in enumerate(self._target.sources):
            top = source.point.rstrip("/") + "/"
            # Where only a part is captured by default, what is open has to be in it.
            needed = shared if source.scanner.largest is None else shared | opened
            always = {path.removeprefix(top) for path in needed if path.startswith(top)} | source.always
            copies = self._staging.files / f"{number:02}"  # each scanner numbers its copies by itself
            copies.mkdir(exist_ok=True)
            entries = source.scanner.scan(copies, always, source.skip)
            self._layers.append((source, entries))

    def run_micro(self, watch: WatchdogPeriod) -> bool:
        """Take it on top of the one before; False where that cannot be: the target runs, and nothing was taken."""
        micro = self._micro
        if micro is None or micro.tracker_pid is None:
            return False
        watch.tool_is(micro.tracker_pid)
        taken = None
        try:
            self._gate_closed = True
            self._cursor = self._gate.close()
            if micro.stop(self._target):
                if not self._leaves_out_ipc or not holds_ipc(self._target.root):
                    self._stands_still()
                    self._look_frozen()
                    self._collect_open_files()
                    taken = micro.go(self._target)
                self._is_whole = taken is not None
        except _IpcAppeared:
            micro.let_go()
        except BaseException:
            micro.let_go()
            raise
        finally:
            self._open_gate()
        if taken is None:
            self._looked_frozen = False
            if self._open_files is not None:
                self._open_files.discard()
                self._open_files = self._new_open_files()
            micro.forget(None)
            return False
        self._taken = (taken.record.wall_ns, taken.record.monotonic_ns)
        self._pause_us = taken.record.pause_ns // 1000
        micro.write(taken, self._staging.images)
        return True

    def run_twice(self, watch: WatchdogPeriod) -> None:
        """Run; once more if System V objects appeared meanwhile, or copies of pages are missing."""
        if self._micro is not None:
            self._micro.begin_base(self._target)
        try:
            self.run(watch)
        except (_IpcAppeared, _PagesMissing):
            self._looked_frozen = self._is_whole = False
            self.forget_memory()
            self.run(watch)

    def run(self, watch: WatchdogPeriod) -> None:
        """Ask CRIU, open the gate again whatever happens, translate its failures."""
        images = os.open(self._staging.images, os.O_RDONLY | os.O_DIRECTORY)
        try:
            with (
                AwaitedName(self._staging.images, _FIRST_AFTER_FREEZE) as frozen,
                CriuProcess(
                    self._tools,
                    inside=self._target.root if self._target.inside else None,
                    inside_ipc=self._leaves_out_ipc,
                    keep=[images],
                    left_out=self._memory.left_out if self._memory is not None else None,
                ) as criu,
            ):
                watch.tool_is(criu.pid)
                answer = criu.ask(
                    self._request(images),
                    limit=self._settings.commit_limit,
                    on_notification=self._notified,
                    on_answer=self._answered,  # the target runs again, though CRIU takes a moment more to end
                    aside=(frozen.fileno(), lambda: self._look_frozen() if frozen.has_come() else None),
                )
        except CriuTimedOut:
            raise CommitTimedOut(
                f"the commit of {self._target.name} was given up",
                cause=f"CRIU took longer than {self._settings.commit_limit:g} s",
                remedy="raise `commit_limit` in relive.toml if the service's memory is large",
            ) from None
        except CriuDied as died:
            raise self._failure(f"CRIU ended with status {died.status} in the middle") from None
        finally:
            os.close(images)
            self._open_gate()
            if self._memory is not None:
                self._memory.close()
        if not answer.success:
            raise self._failure(answer.cr_errmsg)

    def _request(self, images: int) -> rpc.Request:
        options = base_options(f"/proc/self/fd/{images}")
        options.pid = self._root_inside if self._target.inside else self._target.root
        # A process that stands before its fatal signal stays stopped all the same: CRIU puts it back as it found it.
        options.leave_running = True
        options.notify_scripts = True
        options.ghost_limit = min(self._settings.ghost_limit, 0xFFFFFFFF)
        options.tcp_skip_in_flight = True
        options.timeout = max(1, int(self._settings.commit_limit))
        options.external.extend(self._terminals)
        options.irmap_scan_paths.extend(self._watched)
        if self._target.contained is not None:
            _as_runc_does(options, self._target.contained)
        return rpc.Request(type=rpc.DUMP, opts=options)

    def _notified(self, script: str, _pid: int) -> None:
        if script == "pre-dump":
            self._gate_closed = True
            self._cursor = self._gate.close()
        elif script == "post-dump":
            self._stands_still()
            # CRIU saves those of the root itself; of its descendants not all (``images.locks``).
            held = held_posix_locks(procfs.tree_of(self._target.root)[1:])
            self._locks = [lock._replace(pid=procfs.innermost_pid(lock.pid) or 0) for lock in held]
            # CRIU gives a deleted file that has another name a new one beside it, for us to copy.
            has_links = (self._staging.images / _LINKS_MADE).exists()
            if not self._looked_frozen or has_links:
                self._look_frozen(has_links=has_links)
            self._collect_open_files()
            if self._micro is not None:
                self._micro.look()
            if self._memory is not None and not self._memory.lacks_nothing():
                raise _PagesMissing
            self._is_whole = True

    def _stands_still(self) -> None:
        self._taken = (time.time_ns(), time.monotonic_ns())
        if self._cursor is not None:
            self._cursor = self._gate.settle(self._cursor)

    def _collect_open_files(self) -> None:
        if self._open_files is not None:
            self._open_files.collect(self._target.root, self._staging.files)
            for path in self._target.extra_files:
                self._open_files.add_path(path, self._staging.files)

    def _look_frozen(self, *, has_links: bool = False) -> None:
        """The tree stands still: look what it has made since the look before.

        Args:
            has_links: CRIU is done, and has given names to deleted files; before that its images cannot be read.
        """
        if self._leaves_out_ipc and holds_ipc(self._target.root):
            self._leaves_out_ipc = False
            raise _IpcAppeared
        if self._target.followed is not None:
            self._target.followed.look_frozen(self._staging.images if has_links else None)
        self._scan()
        self._looked_frozen = True

    def _answered(self, answer: rpc.Answer) -> None:
        self._is_whole = self._is_whole and answer.success and (self._staging.images / _STATS).exists()
        self._open_gate()

    def _open_gate(self) -> None:
        if self._gate_closed:
            self._gate_closed = False
            # The recording must not say that a commit was taken which failed in the last moment.
            self._gate.open(self._name if self._is_whole else None)

    def _failure(self, sentence: str) -> CommitFailed | DiskFull:
        log = self._staging.images / "criu.log"
        lines = [line for line in [*read_error_lines(log), sentence] if line and not is_harmless(line)]
        # Then CRIU may not even have a log in which it could say so.
        if used_up(self._staging.directory) and not (log.exists() and lines):
            return self._no_space("CRIU could not write its images")
        explanation = explain(lines)
        if explanation.reason == "no-space":
            return self._no_space(explanation.sentence)
        kept = _keep_log(log, self._settings.home / "logs", self._name)
        return _as_error(self._target, explanation, kept)

    def _no_space(self, cause: str) -> DiskFull:
        return disk_full(_NO_SPACE, self._staging.directory, cause)

    def result(self, trigger: Trigger) -> Capture:
        """What was taken; CRIU has ended and the target runs again.

        Raises:
            DiskFull, CommitFailed: CRIU says that all went well, and yet an image is not there or not whole.
        """
        pause_us = self._pause_us if self._pause_us is not None else self._stats().dump.frozen_time
        add_posix_locks(self._staging.images, self._locks)
        files = read_files(self._staging.images)
        if self._target.followed is not None:
            self._layers += self._target.followed.settle(files)
        write_inode_numbers(self._staging.images, self._inode_numbers(written_files(files)))
        if self._micro is not None and self._pause_us is None:
            self._micro.keep_base(self._staging.images)
        return Capture(
            name=self._name,
            target=self._target,
            command=_without_secrets(self._settings, self._target.command),
            trigger=trigger,
            began_monotonic_ns=self._began_ns,
            taken_wall_ns=self._taken[0],
            taken_monotonic_ns=self._taken[1],
            cursor=self._cursor,
            staging=self._staging,
            layers=self._layers,
            criu=CriuTools(self._settings.tools_path).version,
            root_inside=self._root_inside,
            open_files=self._open_files,
            terminals=self._terminals,
            stopped=self._stopped_inside(),
            pause_us=pause_us,
            advance=self._advance,
            memory=self._memory,
        )

    def _inode_numbers(self, paths: set[str]) -> dict[str, int]:
        """Of those files that the commit holds, as the processes saw them."""
        if self._target.followed is not None:
            return self._target.followed.inode_numbers(paths)
        if self._open_files is not None:
            known = self._open_files.inode_numbers
            return {path: known[path] for path in paths & known.keys()}
        found = {}
        for source in self._target.sources:
            top = source.point.rstrip("/") + "/"
            for path in paths:
                below = path.removeprefix(top)
                # The upper layer's number may be another than that which an overlay shows.
                if path.startswith(top) and source.scanner.is_still_there(below):
                    with contextlib.suppress(OSError):
                        found[path] = os.lstat(f"/proc/{self._target.root}/root{path}").st_ino
        return found

    def _stats(self) -> pb.StatsEntry:
        """CRIU writes this image last, and is content when it cannot: seen on a disk whose inodes were used up."""
        try:
            return read_entries(self._staging.images / _STATS, pb.StatsEntry)[0]
        except (OSError, ValueError, IndexError, ReliveError) as error:
            if used_up(self._staging.directory):
                raise self._no_space(f"CRIU could not write {_STATS}") from error
            raise CommitFailed(
                f"{self._target.name} was not committed: an image is missing",
                cause=f"CRIU left no whole {_STATS}: {error}",
                remedy="try again; if it stays so, run `relive doctor`",
            ) from error

    def _stopped_inside(self) -> tuple[int | None, int, int] | None:
        if self._stopped is None:
            return None
        return (
            self._stopped.signal,
            procfs.innermost_pid(self._stopped.pid) or 0,
            procfs.innermost_pid(self._stopped.thread) or 0,
        )


def _as_runc_does(options: rpc.Options, contained: Contained) -> None:
    """A container is dumped from outside with all its namespaces, so that its own runtime can restore it."""
    options.root = contained.root
    options.shell_job = False
    options.orphan_pts_master = True
    options.empty_ns = Namespace.NETWORK  # its devices are its engine's to make
    options.external.extend(contained.external)


def _as_error(target: Target, explanation: Explanation, log: Path | None) -> CommitFailed:
    where = f" (CRIU's log: {log})" if log is not None else ""
    kind = CommitFailed if explanation.reason in NOT_THE_TARGET else TargetUndumpable
    return kind(
        f"{target.name} was not committed: {explanation.what}",
        cause=f"CRIU says: {explanation.sentence}{where}",
        remedy=explanation.remedy,
    )


def _keep_log(log: Path, directory: Path, name: str) -> Path | None:
    if not log.exists():
        return None
    kept = directory / f"commit-{name[:12]}.log"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        kept.write_bytes(log.read_bytes())
    except OSError:
        return None  # a full disk; the sentence itself is in the error
    return kept
