"""Capturing files that a service changes on the host, by the journal that process 1 of its capsule writes.

A commit holds every path that the service has touched in this life, as it was when all of it stood still. Only few of them can have
changed since the commit before: those that the journal tells of since then, and those that were open for writing, or mapped
shared and writable, at that commit. They are looked at twice:

1. While the service runs. A new epoch is begun first, so that what it touches from then on is told again.
2. While it stands still: what is told in the new epoch, and what was looked at before; of this only what has another
   fingerprint (``file_layers``) is copied again.

What was absent before its first touch and is absent now is forgotten: it has come and gone. What was there and is absent now is a
whiteout. Paths are canonical and absolute here, as the service sees them; entries are relative to their mount point.
"""

from __future__ import annotations

import contextlib
import os
import stat
import struct
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import structlog

from relive.checkpoint.expected_files import EXPECTED_MOST, ExpectedFiles
from relive.checkpoint.file_entries import entry_of
from relive.checkpoint.file_layers import (
    CLOCK_GRAIN_NS,
    CapturedFile,
    EntrySource,
    ScannedEntry,
    attributes_of,
    copy_file,
    kind_of,
)
from relive.checkpoint.journal import Control, JournalReader, JournalRecord, RecordKind, check_version
from relive.checkpoint.large_files import REFRESHED_FROM, prepare_refresh, refresh_copy
from relive.checkpoint.open_paths import shared_writable_paths, writable_paths
from relive.images import criu_images_pb2 as pb
from relive.images.file_numbers import FileNumbers
from relive.images.sockets import read_files
from relive.kernel import procfs
from relive.kernel.leases import LEASED, leased_files
from relive.kernel.openat2 import look_without_links
from relive.model.advance import Advance
from relive.model.capsule import DataChoice
from relive.model.commit import EntryKind, FileEntry, LayerKind
from relive.store.small_files import SMALL_MOST, SmallFiles

__all__ = ["LINK_REMAP", "FollowedFiles"]

_SETTLE_LIMIT = 5.0  # [s] for copies that the service waits for; after that it is frozen all the same
# [paths] of more, only those that can have changed are looked at while the service stands still.
_LOOKED_AGAIN_MOST = 4000
# Between the record of a call and the call itself, on a machine that is overloaded.
_IN_FLIGHT_NS = 2_000_000_000
_COMPACTED_FROM = 1 << 18  # [bytes] of the journal
_MOVED_MOST = 20_000  # entries of a directory that was moved
_WRITE_FLAGS = os.O_WRONLY | os.O_RDWR
LINK_REMAP = "link_remap."
"""How CRIU calls the names that it gives to deleted files for the time of a dump."""


@dataclass(frozen=True, slots=True)
class _Place:
    """One mount point whose paths are followed; see ``layers.Source``."""

    point: str
    kind: LayerKind
    files: FollowedFiles

    @property
    def left_out(self) -> list[str]:
        return self.files.left_out(self.point)

    def forget(self, lost: Collection[CapturedFile]) -> None:
        self.files.forget(lost)


_FACTS = struct.Struct("=QQIIIqqq")  # device, inode, mode, uid, gid, size, mtime_ns, ctime_ns


class FollowedFiles:
    """Belongs to the thread that captures; ``forget`` may be called from any.

    Args:
        directory: of the journal.
        view: the root directory that the service sees.
        root: host pid of the service.
        points: gives the mount points that branches cover with an overlay; memory_points: those that they get anew, empty.
        largest: bytes; a larger file is left out, and the commit says so.
        always: paths that are committed though nothing tells of them.
        data: what was chosen for directories of data.
        apart: directories of Relive, never committed (but for ``always``).
    """

    def __init__(
        self,
        directory: Path,
        view: Path,
        root: int,
        *,
        points: Callable[[], Sequence[str]],
        memory_points: Sequence[str],
        largest: int,
        always: Sequence[str] = (),
        data: Mapping[Path, DataChoice] | None = None,
        apart: Sequence[str] = (),
    ) -> None:
        self._points, self._memory_points = points, memory_points
        self._places: dict[str, _Place] = {}
        self._view, self.root = view, root
        self._largest = largest
        self._always = frozenset(always)
        choices = data or {}
        self._whole = [str(path) for path, choice in choices.items() if choice is DataChoice.COPY]
        self._apart = (
            *apart,
            *(str(path) for path, choice in choices.items() if choice is DataChoice.EXCLUDE),
        )
        self._directory = directory
        self._control = Control(directory)
        self._journal = JournalReader(directory)
        self._lock = threading.Lock()
        self._log = structlog.get_logger()
        self._entries: dict[str, FileEntry] = {}
        self._contents: dict[str, CapturedFile] = {}
        self._facts: dict[str, tuple[bytes, int]] = {}  # and when it was described
        self._was_absent: dict[str, bool] = {}  # before its first touch
        self._pending: set[str] = set(self._always)
        self._fresh: set[str] = set()  # of the pending ones: may have changed after the first look
        self._open: set[str] = set()
        self._mapped: set[str] = set()
        self._ancestors: dict[str, FileEntry | None] = {}
        self._left_out: dict[str, str] = {}
        self._leased: frozenset[tuple[int, int]] | None = None  # nothing was to be copied since the last look
        self._counter = 0
        self._lost = 0  # what an agent before this one could not find stays unknown
        self._has_walked = not self._whole
        self._staging: Path | None = None
        self._small: SmallFiles | None = None

    # -- looking -------------------------------------------------------------------------------------------------

    def copy_changed(self, staging: Path, advance: Advance) -> None:
        """Copy what may have changed since the last commit, while the service runs.

        Args:
            staging: an existing directory on the store's file system, for the copies of this commit.
            advance: is told how far it is.

        Raises:
            OSError: the disk is full, or reading failed. Files that vanish meanwhile are no error.
            CapsuleVersionUnknown: another Relive than this one started the service.
        """
        with self._lock:
            check_version(self._directory)
            self._staging = staging
            self._counter += 1
            self._small = SmallFiles(staging / f"{self._counter:08}.small")
            self._leased = None
            self._find_places()
            self._control.wait_until_idle(_SETTLE_LIMIT)
            self._control.next_epoch()
            begun_ns = time.monotonic_ns()
            processes = procfs.tree_of(self.root)
            opened = writable_paths(processes)
            self._mapped = self._followed(shared_writable_paths(processes))
            self._pending |= self._open | self._mapped | self._always
            records = self._journal.read_new()
            self._note(records)
            self._fresh = self._followed(opened) & self._pending | self._mapped | self._open
            self._fresh.update(record.path for record in records if record.time_ns > begun_ns - _IN_FLIGHT_NS)
            if not self._has_walked:
                for top in self._whole:
                    self._walk(top)
                self._has_walked = True
            copying = advance.begin("copying changed files", len(self._pending))
            for path in sorted(self._pending):
                self._describe(path)
                copying.step()

    def _find_places(self) -> None:
        """The host may mount something at any time."""
        kinds = dict.fromkeys(self._points(), LayerKind.OVERLAY)
        kinds |= dict.fromkeys(self._memory_points, LayerKind.TMPFS)
        if kinds.keys() != self._places.keys():
            self._places = {point: _Place(point, kind, self) for point, kind in kinds.items()}
            # Entries are relative to mount points.
            self._pending |= self._entries.keys()
            self._facts.clear()
            self._ancestors.clear()

    def look_frozen(self, images: Path | None = None) -> None:
        """The service stands still: copy again what has changed since ``copy_changed``. From now on bases are kept.

        Args:
            images: of CRIU, where it is done with them: names that it gave to deleted files are in the commit, too.

        Raises:
            OSError: as ``copy_changed``.
        """
        with self._lock:
            self._control.preserve_bases()
            self._leased = None
            self._control.next_epoch()  # what has come and gone since ``copy_changed`` may come again: that is another record
            known = set(self._pending)
            self._note(self._journal.read_new())
            self._mapped = self._followed(shared_writable_paths(procfs.tree_of(self.root)))
            self._pending |= self._mapped
            if images is not None:
                self._note_remapped(images)
            fresh = self._fresh | (self._pending - known) | self._mapped
            again = self._pending if len(self._pending) <= _LOOKED_AGAIN_MOST else fresh
            for path in sorted(again):
                self._describe(path)

    def expect(self) -> ExpectedFiles | None:
        """What has to be so still while the service stands still, for ``look_frozen`` to find nothing; None: it may find something.

        From now on each change is recorded anew, and no record may come before the pause: so the next commit knows of
        all that changes after it.

        Raises:
            OSError: the journal cannot be read.
        """
        with self._lock:
            found = ExpectedFiles()
            self._control.next_epoch()
            is_quiet = self._control.expect_nothing_new(found)
            records = self._journal.read_new()
            self._note(records)
            self._fresh.update(record.path for record in records)
            if records or not is_quiet or not self._journal.expect_nothing_new(found):
                return None
            if self._mapped or len(self._pending) > EXPECTED_MOST:
                return None
            return found if all(self._expect(found, path) for path in self._pending) else None

    def _expect(self, found: ExpectedFiles, path: str) -> bool:
        try:
            facts = os.lstat(f"{self._view}{path}")
        except FileNotFoundError:
            found.absent(f"{self._view}{path}")
            return path not in self._facts
        except OSError:
            return False
        known = self._facts.get(path)
        found.same(f"{self._view}{path}", facts)
        return known is not None and known[0] == _numbers(facts) and self._is_sure(path, facts, known[1])

    def complete(self, files: Iterable[pb.FileEntry]) -> list[tuple[EntrySource, list[ScannedEntry]]]:
        """The service runs again, and the capture was taken: all that the commit holds, by mount point.

        Entries stand in the order of their paths, parents before children, each with its content if it is a file.

        Args:
            files: of CRIU's images, by which it is known what was open.
        """
        with self._lock:
            named = [(entry.reg.name, entry.reg.flags) for entry in files if entry.HasField("reg")]
            writable = self._followed(name for name, flags in named if flags & _WRITE_FLAGS)
            self._look_at_memory_files(name for name, _ in named)
            self._note_missed(writable)
            self._open = writable | self._mapped
            self._pending = {path for path in self._pending if path in self._left_out}
            self._note_lost()
            with contextlib.suppress(OSError):  # a full disk: the journal goes on growing for now
                self._journal.compact(self._is_needed, before=self._control.reached, least=_COMPACTED_FROM)
            return self._listing()

    def file_numbers(self, paths: Iterable[str]) -> dict[str, FileNumbers]:
        """Of files that the last commit holds, as they were at it."""
        with self._lock:
            return {
                path: FileNumbers(*_FACTS.unpack(self._facts[path][0])[:2])
                for path in paths
                if path in self._contents and path in self._facts
            }

    def forget(self, lost: Collection[CapturedFile]) -> None:
        """Copy files anew next time, since copies of them are lost."""
        gone = {id(one) for one in lost}
        with self._lock:
            for path in [path for path, known in self._contents.items() if id(known) in gone]:
                self._forget(path)

    def forget_lost_copies(self) -> None:
        """Those that were staged for a failed commit are gone; what the store has stays known."""
        with self._lock:
            for path in [path for path, known in self._contents.items() if known.is_lost]:
                self._forget(path)

    def _forget(self, path: str) -> None:
        self._contents.pop(path, None)
        self._facts.pop(path, None)
        self._pending.add(path)

    def left_out(self, point: str) -> list[str]:
        """What of a mount point the last commit does not hold, each with the reason after a tab."""
        return sorted(
            f"{path.removeprefix('/')}\t{reason}"
            for path, reason in self._left_out.items()
            if self._point_of(path) == point
        )

    # -- what may have changed -----------------------------------------------------------------------------------

    def _note(self, records: list[JournalRecord]) -> None:
        for record in records:
            path = record.path
            if not self._is_followed(path):
                continue
            was_absent = record.kind in (RecordKind.ABSENT, RecordKind.MOVED)
            self._was_absent.setdefault(path, was_absent)
            self._pending.add(path)
            if record.kind is RecordKind.MOVED:
                self._walk(path)
            elif record.kind is RecordKind.GONE:
                self._log.warning("earlier commits do not hold a file", path=path, reason=record.second)

    def _followed(self, paths: Iterable[str]) -> set[str]:
        return {path for path in paths if self._is_followed(path)}

    def _is_followed(self, path: str) -> bool:
        if path in self._always:
            return True
        if self._point_of(path) is None or path in self._places:
            return False
        return not any(path == top or path.startswith(f"{top}/") for top in (*self._apart, "/proc", "/sys"))

    def _point_of(self, path: str) -> str | None:
        if path.startswith("/dev/") and not path.startswith("/dev/shm/"):
            return None
        while True:
            path = path.rpartition("/")[0] or "/"
            if path in self._places:
                return path
            if path == "/":
                return None

    def _walk(self, top: str) -> None:
        """A directory that came here whole, or that each commit shall hold whole: all below it counts as touched."""
        left = _MOVED_MOST if top not in self._whole else None
        pending = [top]
        while pending:
            directory = pending.pop()
            self._pending.add(directory)
            try:
                with os.scandir(f"{self._view}{directory}") as children:
                    found = [(child.name, child.is_dir(follow_symlinks=False)) for child in children]
            except OSError:
                continue
            for name, is_directory in found:
                path = f"{directory}/{name}"
                if not self._is_followed(path):
                    continue
                if left is not None:
                    left -= 1
                    if left < 0:
                        self._left_out[top] = "it was moved here, and holds too many files"
                        return
                self._pending.add(path)
                if is_directory:
                    pending.append(path)

    def _note_remapped(self, images: Path) -> None:
        for entry in read_files(images):
            if entry.HasField("reg") and LINK_REMAP in entry.reg.name and self._is_followed(entry.reg.name):
                self._was_absent.setdefault(entry.reg.name, True)
                self._pending.add(entry.reg.name)

    def _look_at_memory_files(self, names: Iterable[str]) -> None:
        """What others put into memory and the service has open for reading: a branch has no other place to find it."""
        points = {point for point, place in self._places.items() if place.kind is LayerKind.TMPFS}
        tops = tuple(f"{point.rstrip('/')}/" for point in points)
        held = [name for name in names if name.startswith(tops) and self._point_of(name) in points]
        for name in held:
            if name not in self._entries and self._is_followed(name):
                self._describe(name)

    def _note_missed(self, writable: set[str]) -> None:
        """Files that are open for writing and that no record told of, such as those whose descriptor came from elsewhere."""
        for path in sorted(writable - self._entries.keys()):
            # What has no name any more is in CRIU's images.
            if path not in self._was_absent and os.path.lexists(f"{self._view}{path}"):
                self._was_absent[path] = False
                self._left_out[path] = "it was opened without being noticed; the next commit holds it"
                self._pending.add(path)

    def _note_lost(self) -> None:
        lost = self._control.lost + self._journal.damaged
        if lost > self._lost:
            self._left_out["/"] = f"{lost - self._lost} changes are not known (a full disk, mostly)"
            self._lost = lost

    def _is_needed(self, record: JournalRecord) -> bool:
        """A branch, or this agent's successor, will ask for it."""
        if record.kind is RecordKind.AGAIN:
            return False
        has_base = record.kind not in (RecordKind.NOTED, RecordKind.ABSENT, RecordKind.MOVED)
        return has_base or record.path in self._was_absent

    # -- what there is -------------------------------------------------------------------------------------------

    def _describe(self, path: str) -> None:
        """Bring the entry of a path, and the copy of its content, up to date."""
        try:
            facts = os.lstat(f"{self._view}{path}")
        except OSError:
            self._drop(path)
            return
        known = self._facts.get(path)
        if known is not None and known[0] == _numbers(facts) and self._is_sure(path, facts, known[1]):
            return
        view = os.open(self._view, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            try:
                found = look_without_links(view, path)
            except OSError:
                self._drop(path)  # a link or another thing has taken the place of one of its directories
                return
        finally:
            os.close(view)
        try:
            self._describe_found(path, found)
        finally:
            os.close(found)

    def _describe_found(self, path: str, found: int) -> None:
        described_ns = time.time_ns()
        facts = os.fstat(found)
        kind = kind_of(facts)
        before = self._entries.get(path)
        if before is not None and before.kind is EntryKind.DIRECTORY and kind is not EntryKind.DIRECTORY:
            self._drop_below(path)
        self._left_out.pop(path, None)
        if kind is None:
            self._entries.pop(path, None)  # a device node: branches have their own
            return
        same = f"/proc/self/fd/{found}"
        if kind is EntryKind.FILE and not self._save_content(path, same, facts):
            self._entries.pop(path, None)
            return
        relative = path.removeprefix((self._point_of(path) or "/").rstrip("/") + "/")
        self._entries[path] = entry_of(
            relative,
            kind,
            facts,
            link=os.readlink("", dir_fd=found) if kind is EntryKind.LINK else None,
            opaque=kind is EntryKind.DIRECTORY and path in self._whole,
            attributes=attributes_of(same, follow=True)
            if kind in (EntryKind.FILE, EntryKind.DIRECTORY)
            else None,
        )
        self._facts[path] = (_numbers(facts), described_ns)

    def _save_content(self, path: str, same: str, facts: os.stat_result) -> bool:
        """Whether the commit holds it; copied unless the last copy is as good."""
        held = facts.st_blocks * 512
        if held > self._largest:
            self._left_out[path] = f"it holds {held} bytes; commit_file_limit is {self._largest}"
            return False
        fingerprint = (facts.st_dev, facts.st_ino, facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns)
        known = self._contents.get(path)
        if (
            known is not None
            and known.fingerprint == fingerprint
            and self._is_sure(path, facts, known.taken_ns)
        ):
            return True
        if self._is_leased(facts):
            self._left_out[path] = LEASED
            return False
        assert self._staging is not None and self._small is not None
        taken_ns = time.time_ns()
        if facts.st_size <= SMALL_MOST and (part := self._small.add(same, follow=True)) is not None:
            self._contents[path] = CapturedFile(fingerprint, taken_ns, self._small.path, part=part)
            return True
        copy = known.copy if known is not None and known.part is None else None
        is_of_this_commit = copy is not None and copy.parent == self._staging
        if copy is None or not is_of_this_commit or held < REFRESHED_FROM or not refresh_copy(same, copy):
            self._counter += 1
            copy = self._staging / f"{self._counter:08}"
            copy_file(same, copy, follow=True)
            if held >= REFRESHED_FROM:
                prepare_refresh()  # at the next look the service may stand still
        self._contents[path] = CapturedFile(fingerprint, taken_ns, copy)
        return True

    def _is_leased(self, facts: os.stat_result) -> bool:
        if self._leased is None:  # the kernel's list may take 10 ms to read
            self._leased = leased_files()
        return (facts.st_dev, facts.st_ino) in self._leased

    def _is_sure(self, path: str, facts: os.stat_result, looked_ns: int) -> bool:
        """What has the same times as when it was looked at is the same: writes through a mapping do not move them."""
        changed_ns = max(facts.st_mtime_ns, facts.st_ctime_ns)
        return path not in self._mapped and changed_ns + CLOCK_GRAIN_NS < looked_ns

    def _drop(self, path: str) -> None:
        """Nothing is there (any more)."""
        before = self._entries.pop(path, None)
        self._contents.pop(path, None)
        self._facts.pop(path, None)
        self._left_out.pop(path, None)
        if before is not None and before.kind is EntryKind.DIRECTORY:
            self._drop_below(path)
        if self._was_absent.get(path, True):
            self._was_absent.pop(path, None)
            return
        relative = path.removeprefix((self._point_of(path) or "/").rstrip("/") + "/")
        self._entries[path] = FileEntry(path=relative, kind=EntryKind.WHITEOUT)

    def _drop_below(self, top: str) -> None:
        for path in [path for path in self._entries if path.startswith(f"{top}/")]:
            for kept in (self._entries, self._contents, self._facts):
                kept.pop(path, None)

    # -- what the commit holds -----------------------------------------------------------------------------------

    def _listing(self) -> list[tuple[EntrySource, list[ScannedEntry]]]:
        found: dict[str, dict[str, ScannedEntry]] = {point: {} for point in self._places}
        for path, entry in self._entries.items():
            point = self._point_of(path)
            if point is None:
                continue
            ancestors = self._ancestors_of(path, point)
            if ancestors is None:
                continue
            for ancestor in ancestors:
                found[point].setdefault(ancestor.path, (ancestor, None))
            content = self._contents.get(path) if entry.kind is EntryKind.FILE else None
            found[point][entry.path] = (entry, content)
        return [
            (place, [found[point][path] for path in sorted(found[point])])
            for point, place in self._places.items()
        ]

    def _ancestors_of(self, path: str, point: str) -> list[FileEntry] | None:
        """The directories between a mount point and a path; None where one of them is not there."""
        top = point.rstrip("/") + "/"
        names = path.removeprefix(top).split("/")[:-1]
        found = []
        for count in range(1, len(names) + 1):
            relative = "/".join(names[:count])
            entry = self._entries.get(top + relative) or self._ancestor(top, relative)
            if entry is None or entry.kind is not EntryKind.DIRECTORY:
                return None
            found.append(entry)
        return found

    def _ancestor(self, top: str, relative: str) -> FileEntry | None:
        path = top + relative
        if path not in self._ancestors:
            self._ancestors[path] = None
            with contextlib.suppress(OSError):
                facts = os.lstat(f"{self._view}{path}")
                if stat.S_ISDIR(facts.st_mode):
                    attributes = attributes_of(f"{self._view}{path}")
                    self._ancestors[path] = entry_of(
                        relative, EntryKind.DIRECTORY, facts, attributes=attributes
                    )
        return self._ancestors[path]


def _numbers(facts: os.stat_result) -> bytes:
    """In a fifth of the room that a tuple takes: there is one for each file that the service ever touched."""
    return _FACTS.pack(
        facts.st_dev,
        facts.st_ino,
        facts.st_mode,
        facts.st_uid,
        facts.st_gid,
        facts.st_size,
        facts.st_mtime_ns,
        facts.st_ctime_ns,
    )
