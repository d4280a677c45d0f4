"""Following which files a process tree changes, in a thread; whoever is followed never waits for it.

Each file system that the tree can write to is marked (``kernel.fanotify``), and events of other processes are passed over: the
tree is known by its forks. What cannot be followed becomes a gap in the journal, and a line in each later commit:

- file systems without handles (some of the network, FUSE), and those that are mounted later;
- what happened while no agent ran, or came faster than it was read;
- ``truncate`` by name, and changes through descriptors that other processes hold: nobody can see these, so they are limits of the
  documentation, not gaps.
"""

from __future__ import annotations

import contextlib
import os
import select
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import structlog

from relive.checkpoint.watched_files import Reported
from relive.kernel import procfs
from relive.kernel.fanotify import (
    Done,
    FileEvent,
    follow_file_system,
    open_directory,
    open_group,
    read_events,
    system_of,
)
from relive.kernel.namespaces import Namespace, namespace_id
from relive.kernel.procevents import Forks
from relive.watching.processes.journal import CHANGED, CREATED, TREE, JournalWriter

__all__ = ["FileTracker", "TrackedMount", "names_of", "read_mounts"]

# Kernel interfaces, which hold no files of anybody.
_NO_FILES = frozenset(
    "autofs binfmt_misc bpf cgroup cgroup2 configfs debugfs devpts devtmpfs efivarfs fusectl hugetlbfs mqueue nsfs proc pstore"
    " rpc_pipefs securityfs selinuxfs sysfs tracefs".split()
)
_ALIVE_EVERY = 1.0  # [s]
_PATHS_MOST = 200_000
_CACHED_MOST = 50_000


@dataclass(frozen=True, slots=True)
class TrackedMount:
    """A line of mountinfo: directory ``root`` of a file system stands at ``point``."""

    root: str
    point: str
    kind: str
    device: str
    is_writable: bool


def read_mounts(pid: int) -> list[TrackedMount]:
    """What is mounted where a process looks, without the kernel's own interfaces; empty when it is gone."""
    try:
        lines = Path(f"/proc/{pid}/mountinfo").read_bytes().splitlines()
    except OSError:
        return []
    found = []
    for line in lines:
        fields = [os.fsdecode(_unescaped(word)) for word in line.split(b" ")]
        kind, options = fields[fields.index("-") + 1], (*fields[5].split(","), *fields[-1].split(","))
        if kind not in _NO_FILES:
            found.append(TrackedMount(fields[3], fields[4], kind, fields[2], "ro" not in options))
    return found


def _unescaped(word: bytes) -> bytes:
    for code, byte in ((b"\\040", b" "), (b"\\011", b"\t"), (b"\\012", b"\n"), (b"\\134", b"\\")):
        word = word.replace(code, byte)
    return word


def names_of(path: str, through: TrackedMount, mounts: Iterable[TrackedMount]) -> list[str]:
    """All places at which a path, seen through one mount, can stand where the same file system is mounted again."""
    below = path[len(through.point.rstrip("/")) :] if through.point != "/" else path
    whole = f"{through.root.rstrip('/')}{below}" or "/"
    found = []
    for mount in mounts:
        top = mount.root.rstrip("/")
        if mount.device == through.device and (whole == top or whole.startswith(f"{top}/")):
            found.append(f"{mount.point.rstrip('/')}{whole[len(top) :]}".rstrip("/") or "/")
    return found


class FileTracker:
    """From its making until ``close``. ``look`` may be called in any thread.

    Args:
        root: of the tree.
        home: of Relive; what lies below it is none of the service's files.
    """

    def __init__(self, root: int, journal: JournalWriter, home: Path) -> None:
        self._root = root
        self._journal = journal
        self._home = f"{str(home).rstrip('/')}/"
        self._log = structlog.get_logger()
        self._lock = threading.Lock()
        self._dropped: set[str] = set()
        self._places: dict[tuple[tuple[int, int], bytes], list[str]] = {}
        self._by_system: dict[tuple[int, int], TrackedMount] = {}
        shares = namespace_id(root, Namespace.MOUNT) == namespace_id("self", Namespace.MOUNT)
        self.view = "" if shares else f"/proc/{root}/root"
        self._mounts = read_mounts(root)
        self._forks = self._hear_forks()
        self._tree = set(procfs.tree_of(root))
        self._wake, self._woken = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._group = self._mark()
        self._note_pause()
        self._thread = threading.Thread(target=self._follow, name="following", daemon=True)
        self._thread.start()

    def _hear_forks(self) -> Forks | None:
        try:
            return Forks()
        except OSError as error:
            self._log.info("forks are not heard", cause=str(error))
            return None

    def _mark(self) -> int | None:
        try:
            group = open_group()
        except OSError as error:
            self._journal.note_gap(
                "", f"files that it has closed again: this kernel follows none, {error.strerror}"
            )
            return None
        done: set[str] = set()
        for mount in sorted(self._mounts, key=lambda mount: len(mount.root)):
            if not mount.is_writable or mount.device in done:
                continue
            place = f"{self.view}{mount.point}"
            try:
                if not Path(place).is_dir():
                    continue
                follow_file_system(group, place)
                self._by_system.setdefault(system_of(place), mount)
            except OSError as error:
                self._journal.note_gap(
                    mount.point,
                    f"files that it has closed again: {mount.kind} tells nobody, {error.strerror}",
                )
            done.add(mount.device)
        return group

    def _note_pause(self) -> None:
        since = self._journal.last_alive_ns
        if since is not None:
            began, ended = (
                datetime.fromtimestamp(at / 1e9, UTC).strftime("%F %T") for at in (since, time.time_ns())
            )
            self._journal.note_gap(
                "", f"files first changed from {began} to {ended} UTC: nobody followed them then"
            )
        self._journal.note_alive()

    def points(self) -> list[str]:
        """Directories at which file systems stand that it may write to, the root first."""
        writable = {mount.point for mount in self._mounts if mount.is_writable and mount.point != "/"}
        return ["/", *(point for point in sorted(writable) if Path(f"{self.view}{point}").is_dir())]

    def look(self) -> Reported:
        """All that is known at this moment, of a tree that stands still: all that it has done."""
        with self._lock:
            self._read()
            known = self._journal.known
            paths = [
                path for path, (_, how) in known.paths.items() if how != TREE and path not in self._dropped
            ]
            trees = [path for path, (_, how) in known.paths.items() if how == TREE]
            return Reported(paths, trees, [text for _, text in known.gaps])

    def forget_absent(self, paths: Iterable[str]) -> None:
        """Paths that were made since the watch began and are no more: until they come again nothing is said of them."""
        with self._lock:
            known = self._journal.known.paths
            self._dropped.update(path for path in paths if path in known and known[path][1] == CREATED)

    def _follow(self) -> None:
        poll = select.poll()
        poll.register(self._wake, select.POLLIN)
        for descriptor in (self._group, self._forks):
            if descriptor is not None:
                poll.register(descriptor, select.POLLIN)
        alive = 0.0
        while True:
            ready = poll.poll(_ALIVE_EVERY * 1000)
            if any(descriptor == self._wake for descriptor, _ in ready):
                return
            with self._lock:
                self._read()
            if time.monotonic() - alive > _ALIVE_EVERY:
                alive = time.monotonic()
                self._journal.note_alive()

    def _read(self) -> None:
        events = list(read_events(self._group)) if self._group is not None else []
        self._read_forks()  # after the events: who has done something was forked before it
        opened: dict[tuple[int, int], int] = {}
        try:
            for event in events:
                if event.done & Done.LOST:
                    self._journal.note_gap(
                        "",
                        "files first changed in a moment with too many changes: the kernel's queue was full",
                    )
                elif self._is_ours(event.pid):
                    self._note(event, opened)
                if event.done & Done.DIRECTORY and event.done & (Done.MOVED_FROM | Done.MOVED_TO):
                    self._places.clear()
        finally:
            # An open descriptor would keep its file system from being unmounted.
            for descriptor in opened.values():
                if descriptor >= 0:
                    os.close(descriptor)

    def _read_forks(self) -> None:
        if self._forks is None:
            return
        try:
            for parent, child in self._forks.read():
                if parent in self._tree:
                    self._tree.add(child)
                else:
                    self._tree.discard(child)  # a number that was used before
        except OSError as error:
            self._tree.update(procfs.tree_of(self._root))
            self._journal.note_gap(
                "", f"files first changed by short-lived processes: forks were lost, {error.strerror}"
            )

    def _is_ours(self, pid: int) -> bool:
        if pid in self._tree:
            return True
        if self._forks is not None or pid == 0:
            return False
        # Without the forks: who is gone by now may have been one of the tree's.
        at = pid
        while at > 1:
            stat = procfs.read_stat(at)
            if stat is None:
                return at == pid
            if stat.parent in self._tree:
                self._tree.add(pid)
                return True
            at = stat.parent
        return False

    def _note(self, event: FileEvent, opened: dict[tuple[int, int], int]) -> None:
        done = event.done
        for directory in self._directories(event, opened):
            path = directory if event.name in ("", ".") else f"{directory.rstrip('/')}/{event.name}"
            if path.startswith(self._home):
                continue
            self._dropped.discard(path)
            how = CREATED if done & Done.CREATED and not done & (Done.DELETED | Done.MOVED_FROM) else CHANGED
            if done & Done.DIRECTORY and done & Done.MOVED_TO:
                how = TREE
            known = self._journal.known.paths.get(path)
            if known is not None and (how != TREE or known[1] == TREE):
                continue
            if len(self._journal.known.paths) >= _PATHS_MOST:
                self._journal.note_gap(
                    "", f"files after the first {_PATHS_MOST} that it changed: they are too many"
                )
                return
            self._journal.note(path, how)

    def _directories(self, event: FileEvent, opened: dict[tuple[int, int], int]) -> list[str]:
        """Where the service sees the directory of an event; empty where it does not, or it is gone."""
        key = (event.system, event.directory)
        known = self._places.get(key)
        if known is None:
            known = self._resolve(event, opened)
            if len(self._places) >= _CACHED_MOST:
                self._places.clear()
            if known:
                self._places[key] = known
        return known

    def _resolve(self, event: FileEvent, opened: dict[tuple[int, int], int]) -> list[str]:
        mount = self._by_system.get(event.system)
        if mount is None:
            return []
        if event.system not in opened:
            try:
                opened[event.system] = os.open(
                    f"{self.view}{mount.point}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
                )
            except OSError:
                opened[event.system] = -1
        if opened[event.system] < 0:
            return []
        try:
            descriptor = open_directory(opened[event.system], event.directory)
        except OSError:
            return []
        try:
            path, facts = os.readlink(f"/proc/self/fd/{descriptor}"), os.fstat(descriptor)
        finally:
            os.close(descriptor)
        found = []
        for name in names_of(path, mount, self._mounts):
            with contextlib.suppress(OSError):
                here = os.stat(f"{self.view}{name}")
                if (here.st_dev, here.st_ino) == (facts.st_dev, facts.st_ino):
                    found.append(name)
        return found

    def close(self) -> None:
        """Follow no more; nothing of it is left."""
        os.write(self._woken, b"x")
        self._thread.join()
        for descriptor in (self._wake, self._woken, self._group):
            if descriptor is not None:
                os.close(descriptor)
        if self._forks is not None:
            self._forks.close()
