"""Taking a commit: freeze, copy, resume; ``dumped`` makes it durable afterwards, with the target running again.

1. Files are copied once while the target runs (``target_files``), and so is memory, where there is much (``copied_ahead``).
2. Whoever traces the target steps aside, the watchdog is armed, CRIU starts.
3. On CRIU's "pre-dump" the gate of the recording is closed, so that no request byte moves during the dump.
   From here to 5 CRIU and this thread go before all ordinary work (``realtime``): with both cores busy each of its many hand-overs
   to the code in the target and back would wait for a core.
4. CRIU freezes the tree and writes its images. Meanwhile files that changed since step 1 are copied again: from the
   moment at which CRIU opens ``files.img``, which is right after the freeze; at the latest on "post-dump".
5. CRIU resumes the tree; the gate opens. What the target felt is the time between 3 and 5.
   With ``micro_commits`` 2 to 5 are its own, wherever it can take the commit on top of the one before.
6. ``Capture.store`` hashes, fsyncs and writes the manifest. Only now is the commit durable.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
import uuid
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import lru_cache
from pathlib import Path

from relive.checkpoint import criu_rpc_pb2 as rpc
from relive.checkpoint.copied_ahead import CopiedAhead
from relive.checkpoint.criu import CriuDied, CriuProcess, CriuTimedOut, CriuTools, base_options
from relive.checkpoint.dump_errors import (
    STATS,
    copy_errors,
    criu_failure,
    dump_stats,
    target_ended,
    timed_out,
)
from relive.checkpoint.dumped import Capture
from relive.checkpoint.expected_files import ExpectedFiles
from relive.checkpoint.inotify_watches import watched_paths
from relive.checkpoint.micro_commits import MicroCommits
from relive.checkpoint.request_gate import NoRequestGate, RequestGate
from relive.checkpoint.target import Contained, StoppedBy, Target, check_dumpable, terminals_of
from relive.checkpoint.target_files import TargetFiles
from relive.checkpoint.tracked_files import LINK_REMAP
from relive.checkpoint.watchdog import Watchdog, WatchdogPeriod
from relive.config import Settings
from relive.errors import CommitFailed, CommitTimedOut, DiskFull
from relive.images import criu_images_pb2 as pb
from relive.images.file_numbers import write_file_numbers, written_files
from relive.images.image_directory import ImageDirectory
from relive.images.locks import add_posix_locks
from relive.images.sockets import read_files
from relive.kernel import procfs
from relive.kernel.filelocks import PosixLock, held_posix_locks
from relive.kernel.inotify import AwaitedName
from relive.kernel.lock_list import OpenLockList
from relive.kernel.namespaces import Namespace, holds_ipc
from relive.kernel.realtime import BeforeOthers
from relive.model.advance import Advance
from relive.model.commit import Cursor, TargetKind, Trigger
from relive.store import Staging, Store
from relive.store.held_images import HeldImages
from relive_inprocess.relive_recorder.scrub import Scrubber

__all__ = ["Aside", "capture"]

# A context in which nobody traces the target. It is entered once, or with ``pre_copy`` twice, in the thread of ``capture``.
Aside = Callable[[], AbstractContextManager[object]]

# CRIU opens its shared images (cr_glob_imgset_open) once all threads stand still.
_FIRST_AFTER_FREEZE = "files.img"
_REMAPPED = "remap-fpath.img"
# [s] of a longer pause the rest goes on as any other work: the machine is not only there for this.
_BEFORE_OTHERS_MOST = 0.25
_LOCKS_WITHIN = 0.1  # [s] it takes some 10 ms; what comes later is felt in the pause


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
    aside: Aside = contextlib.nullcontext,
) -> Capture:
    """Take a commit of a target, which runs on afterwards whatever happens (unless it was stopped before).

    ``name``, of 32 hexadecimal digits, is what the manifest calls the capture, by which it can be found
    (``Store.captured_as``); it is given to one commit only. Without it is a random one. ``advance`` is told how far it is, also
    while it is stored. ``micro`` takes it on top of the one before where it can. A process has one tracer: whoever else traces the
    target is out of the way within ``aside``, and may trace it at all other times.

    Raises:
        TargetUndumpable: the target holds something that cannot be saved.
        CommitTimedOut: it took longer than ``settings.commit_limit``.
        CommitFailed: CRIU failed otherwise.
        ProcessGone: the target ended meanwhile.
            Either is caused, however indirectly, by CriuDied where CRIU ended without an answer, such as one that was killed.
        PermissionMissing, ToolMissing, DiskFull: as they say.
    """
    tools = CriuTools(settings.tools_path)
    # On top of the one before, the tracker sees what would be in the way of a commit.
    has_base = micro is not None and micro.tracker_pid is not None
    begun = procfs.read_stat(target.root)
    staging = store.stage(micro.spares if micro is not None else None)
    dump = _Dump(
        target, settings, tools, staging, gate or NoRequestGate(), stopped, name, advance or Advance(), micro
    )
    try:
        with copy_errors(staging.directory):
            dump.copy_ahead(aside)
            with aside(), watchdog.watching(target.root, settings.commit_limit, dump.tracker) as watch:
                if not has_base:
                    _check(tools, target)
                try:
                    if not dump.run_micro(watch):
                        if has_base:
                            _check(tools, target)
                        dump.run_twice(watch)
                except CommitFailed:
                    # What CRIU then says is only that it was ended.
                    if watch.stepped_in:
                        raise _stepped_in(target, settings) from None
                    raise
            if watch.stepped_in:
                raise _stepped_in(target, settings)
            return dump.result(trigger)
    except BaseException as error:
        dump.forget_memory()
        if micro is not None:
            micro.forget("the commit before it failed")
        staging.discard()
        dump.files.forget_copies()
        if isinstance(error, CommitFailed) and _has_ended(target, begun):
            raise target_ended(target.name, error) from error
        raise


def _check(tools: CriuTools, target: Target) -> None:
    tools.check()
    check_dumpable(target.root)


def _has_ended(target: Target, begun: procfs.ProcessStat | None) -> bool:
    return begun is None or not procfs.is_same_process(target.root, begun.start_ticks)


def _without_secrets(settings: Settings, command: list[str]) -> list[str]:
    return list(_scrubbed(tuple(settings.secret_patterns), tuple(settings.secret_names), tuple(command)))


@lru_cache(maxsize=8)  # of one commit after another it is the same
def _scrubbed(patterns: tuple[str, ...], names: tuple[str, ...], command: tuple[str, ...]) -> list[str]:
    return Scrubber(patterns, names).words(command)


def _stepped_in(target: Target, settings: Settings) -> CommitTimedOut:
    cause = f"it took longer than {settings.commit_limit:g} s; the watchdog resumed the service"
    return timed_out(target.name, cause)


def _do_nothing() -> None:
    pass


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
        self._held: HeldImages | None = None
        self._files: list[pb.FileEntry] | None = None
        self._written_pages = 0
        self._advance = advance
        self._settings = settings
        self._tools = tools
        self._staging = staging
        self._gate = gate
        self._stopped = stopped
        self._name = name or uuid.uuid4().hex
        self._began_ns = time.monotonic_ns()
        self._gate_closed = False
        self._lock_list = OpenLockList()
        self._hurry: Callable[[], None] = _do_nothing
        self._cursor: Cursor | None = None
        self._taken = (0, 0)
        self._is_whole = False
        self._locks: list[PosixLock] = []
        self._memory: CopiedAhead | None = None
        self._looked_frozen = False
        self.files = TargetFiles(target, staging, settings.open_file_limit, settings.home)
        is_process = target.kind is TargetKind.PROCESS
        self._terminals = terminals_of(target.root) if is_process else []
        # An empty IPC namespace costs 2 ms of pause to save; a branch gets an empty one anyway. Whether it is empty is looked for
        # before CRIU begins; in a commit on top of another the tracker compares what is in it.
        self._leaves_out_ipc = target.inside and target.kind is TargetKind.CAPSULE
        # Looking for them is left to a full commit where none is expected.
        self._watched = self._find_watched() if micro is None or micro.tracker_pid is None else None
        self._root_inside = procfs.innermost_pid(target.root) or target.root

    def copy_ahead(self, aside: Aside) -> None:
        """Copy what can be copied while the target runs."""
        if self._copies_memory():
            # Where it cannot be begun, CRIU dumps all of it.
            with contextlib.suppress(OSError), aside():
                self._memory = CopiedAhead(
                    self._tools,
                    self._staging.directory / "memory",
                    self._target.root,
                    inside=self._target.inside,
                    is_capsule=self._target.kind is TargetKind.CAPSULE,
                )
                self._memory.wait_until_begun(self._settings.commit_limit)
        self.files.copy_ahead(self._advance)
        if self._memory is not None:
            self._memory.wait(self._settings.commit_limit)

    def _copies_memory(self) -> bool:
        # A process that stands before its fatal signal is not made to run for this.
        if self._stopped is not None or self._micro is not None:
            return False
        least = self._settings.pre_copy_from
        if least is None:
            return False
        found = map(procfs.memory_of, procfs.tree_of(self._target.root))
        return sum(one.private for one in found if one is not None) >= least

    def forget_memory(self) -> None:
        """What was copied of it is not needed."""
        memory, self._memory = self._memory, None
        if memory is not None:
            memory.discard()

    @property
    def tracker(self) -> int:
        """The process by which the target is stopped where the commit may be taken on top of the one before; 0: it cannot be."""
        return (self._micro.tracker_pid or 0) if self._micro is not None else 0

    def run_micro(self, watch: WatchdogPeriod) -> bool:
        """Take it on top of the one before; False where that cannot be: the target runs, and nothing was taken."""
        micro = self._micro
        if micro is None or micro.tracker_pid is None:
            return False
        taken = files = None
        try:
            self._close_gate()
            expected = self._expected()
            if micro.stop(self._target, expected):
                if not micro.waits:
                    # The gate is closed and nobody waits for an answer: what is under way left the target before it was stopped.
                    self._stands_still()
                    taken = micro.go(self._target, expected)
                else:
                    self._stands_still(at_once=True)
                    self._look_frozen()
                    self.files.forget_open()
                    self._collect_open_files()
                    taken = micro.go(self._target)
                if taken is not None:
                    files = micro.files_of(taken)
                self._is_whole = taken is not None
            elif micro.has_lost_tracker:
                watch.mend()  # at once: its threads sleep for so long only (``native/micro/round_trip.c``)
        except BaseException:
            micro.let_go()
            raise
        finally:
            self._open_gate(files)
        if taken is None or files is None:
            self._looked_frozen = False
            self.files.forget_open()
            micro.forget(None)
            return False
        self._taken = taken.taken
        self._pause_us = taken.pause_ns // 1000
        try:
            self._held = micro.images_of(taken, files, self._name)
        except BaseException:
            watch.tool_is(
                0
            )  # the target runs: it is not to be stopped once more so that the tracker can be ended
            raise
        self._files = taken.connections.files
        self._written_pages = taken.copied_pages
        return True

    def _expected(self) -> ExpectedFiles | None:
        """The last look before a pause in which, where all is still so, nobody has to look; None: somebody has to."""
        if self._cursor is not None and self._cursor.open_requests:
            return None  # which of their answers have left the target is known when it stands still
        return self.files.expect()

    def _find_watched(self) -> list[str]:
        return watched_paths(self._target.root) if self._target.kind is not TargetKind.PROCESS else []

    def run_twice(self, watch: WatchdogPeriod) -> None:
        """Run; once more if System V objects appeared meanwhile, or copies of pages are missing."""
        if self._watched is None:
            self._watched = self._find_watched()
        if self._micro is not None:
            self._micro.begin_base(self._target)
        self._leaves_out_ipc = self._leaves_out_ipc and not holds_ipc(self._target.root)
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
                OpenLockList() as self._lock_list,
                AwaitedName(self._staging.images, _FIRST_AFTER_FREEZE) as frozen,
                CriuProcess(
                    self._tools,
                    inside=self._target.root if self._target.inside else None,
                    inside_ipc=self._leaves_out_ipc,
                    keep=[images],
                    left_out=self._memory.left_out if self._memory is not None else None,
                    of_branch=self._target.is_branch,
                ) as criu,
                BeforeOthers(_BEFORE_OTHERS_MOST) as before_others,
            ):

                def hurry() -> None:
                    before_others.add(criu.criu_pid)
                    before_others.add(threading.get_native_id())

                # Nobody waits for what stands before its fatal signal.
                self._hurry = hurry if self._stopped is None else _do_nothing
                watch.tool_is(criu.pid)
                answer = criu.ask(
                    self._request(images),
                    limit=self._settings.commit_limit,
                    on_notification=self._notified,
                    on_answer=self._answered,  # the target runs again, though CRIU takes a moment more to end
                    aside=(frozen.fileno(), lambda: self._look_dumped() if frozen.has_come() else None),
                )
        except CriuTimedOut:
            cause = f"CRIU took longer than {self._settings.commit_limit:g} s"
            raise timed_out(self._target.name, cause) from None
        except CriuDied as died:
            raise self._failure(f"CRIU ended with status {died.status} in the middle") from died
        finally:
            os.close(images)
            self._open_gate(self._staging.images)
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
        options.irmap_scan_paths.extend(self._watched or [])
        if self._target.contained is not None:
            _as_runc_does(options, self._target.contained)
        return rpc.Request(type=rpc.DUMP, opts=options)

    def _notified(self, script: str, _pid: int) -> None:
        if script == "pre-dump":
            self._lock_list.wait(_LOCKS_WITHIN)
            self._hurry()
            self._close_gate()
        elif script == "post-dump":
            self._stands_still()
            # CRIU saves those of the root itself; of its descendants not all (``images.locks``).
            held = held_posix_locks(procfs.tree_of(self._target.root)[1:])
            self._locks = [lock._replace(pid=procfs.innermost_pid(lock.pid) or 0) for lock in held]
            has_links = _made_links(self._staging.images)
            if not self._looked_frozen or has_links:
                self._look_dumped(has_links=has_links)
            self._collect_open_files()
            if self._micro is not None:
                self._micro.look()
            if self._memory is not None and not self._memory.lacks_nothing():
                raise _PagesMissing
            self._is_whole = True

    def _close_gate(self) -> None:
        """The last thing before the pause."""
        self._gate_closed = True
        self._cursor = self._gate.close()

    def _stands_still(self, *, at_once: bool = False) -> None:
        self._taken = (time.time_ns(), time.monotonic_ns())
        if self._cursor is not None:
            self._cursor = self._gate.settle(self._cursor, at_once=at_once)

    def _collect_open_files(self) -> None:
        self.files.collect_open()

    def _look_dumped(self, *, has_links: bool = False) -> None:
        """As ``_look_frozen``, for CRIU, which was told before whether System V objects are to be saved."""
        if self._leaves_out_ipc and holds_ipc(self._target.root):
            self._leaves_out_ipc = False
            raise _IpcAppeared
        self._look_frozen(has_links=has_links)

    def _look_frozen(self, *, has_links: bool = False) -> None:
        """The tree stands still: look what it has made since the look before.

        Args:
            has_links: CRIU is done, and has given names to deleted files; before that its images cannot be read.
        """
        self.files.look_frozen(self._staging.images if has_links else None)
        self._looked_frozen = True

    def _answered(self, answer: rpc.Answer) -> None:
        self._is_whole = self._is_whole and answer.success and (self._staging.images / STATS).exists()
        self._open_gate(self._staging.images)

    def _open_gate(self, images: ImageDirectory | None) -> None:
        if self._gate_closed:
            self._gate_closed = False
            # The recording must not say that a commit was taken which failed in the last moment.
            self._cursor = self._gate.open(self._name if self._is_whole else None, self._cursor, images)

    def _failure(self, sentence: str) -> CommitFailed | DiskFull:
        return criu_failure(self._target.name, self._staging.images, sentence, self._name, self._settings)

    def result(self, trigger: Trigger) -> Capture:
        """What was taken; CRIU has ended and the target runs again.

        Raises:
            DiskFull, CommitFailed: CRIU says that all went well, and yet an image is not there or not whole.
        """
        pause_us = self._pause_us
        if pause_us is None:
            pause_us = dump_stats(self._target.name, self._staging.images).dump.frozen_time
        images: ImageDirectory = self._held or self._staging.images
        if self._held is None:  # else they are as in the base, and in its images
            add_posix_locks(self._staging.images, self._locks)
        files = self._files if self._files is not None else read_files(images)
        self.files.complete(files)
        write_file_numbers(images, self.files.file_numbers(written_files(files)))
        if self._micro is not None and self._pause_us is None:
            self._micro.set_base(self._staging.images)
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
            layers=self.files.layers,
            criu=CriuTools(self._settings.tools_path).version,
            root_inside=self._root_inside,
            open_files=self.files.open_files,
            terminals=self._terminals,
            stopped=self._stopped_inside(),
            pause_us=pause_us,
            is_micro=self._pause_us is not None,
            full_because=self._micro.reason if self._micro is not None and self._pause_us is None else None,
            written_pages=self._written_pages,
            advance=self._advance,
            memory=self._memory,
            held=self._held,
            files=files,
        )

    def _stopped_inside(self) -> tuple[int | None, int, int] | None:
        if self._stopped is None:
            return None
        return (
            self._stopped.signal,
            procfs.innermost_pid(self._stopped.pid) or 0,
            procfs.innermost_pid(self._stopped.thread) or 0,
        )


def _made_links(images: Path) -> bool:
    """CRIU has given a new name to a deleted file that has another one, for us to copy; what has no name left it saves itself."""
    return (images / _REMAPPED).exists() and any(
        entry.HasField("reg") and LINK_REMAP in entry.reg.name for entry in read_files(images)
    )


def _as_runc_does(options: rpc.Options, contained: Contained) -> None:
    """A container is dumped from outside with all its namespaces, so that its own runtime can restore it."""
    options.root = contained.root
    options.shell_job = False
    options.orphan_pts_master = True
    options.empty_ns = Namespace.NETWORK  # its devices are its engine's to make
    options.external.extend(contained.external)
