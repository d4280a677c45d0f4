"""Capturing files: what a target has written since it started, copied at the moment of the commit.

A capsule's writes lie in the upper directories of its overlays (kernel Documentation/filesystems/overlayfs.rst): new and
changed files whole, deletions as character devices 0:0 ("whiteouts"), replaced directories marked opaque.

``LayerScanner`` copies in two passes: once before the target is stopped, and once while it is stopped, when only what has
changed in between is copied again. A file counts as unchanged when its inode, size, modification and change times are the
same and lie safely before the earlier copy; files that are mapped shared and writable are always copied again, since
writes through a mapping do not move these times.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from relive.checkpoint.file_entries import entry_of
from relive.errors import ReliveError
from relive.model.commit import EntryKind, FileEntry, LayerKind
from relive.store.small_files import SMALL_MOST, FilePart, SmallFiles

__all__ = [
    "CLOCK_GRAIN_NS",
    "CapturedFile",
    "EntrySource",
    "LayerScanner",
    "LayerSource",
    "NamedPath",
    "ScannedEntry",
    "attributes_of",
    "copy_file",
    "kind_of",
]

# A file changed this shortly before it was copied may change again with the same times.
CLOCK_GRAIN_NS = 20_000_000
_OPAQUE = "trusted.overlay.opaque"
_OVERLAY_PREFIX = "trusted.overlay."
_METACOPY, _REDIRECT = "trusted.overlay.metacopy", "trusted.overlay.redirect"
_COPY_STEP = 1 << 30  # [bytes] most that one copy_file_range moves


@dataclass(slots=True)
class CapturedFile:
    """Content of one file at the last copy.

    Attributes:
        fingerprint: (device, inode, size, mtime_ns, ctime_ns) when it was copied.
        copy: where the copy lies; None once it has moved into the store, or is lost with a commit that failed.
        part: where in that file, if it holds many; None: it is all of it.
        object: name of the content in the store; None before that.
        failure: why the commit that it was copied for could not be stored; None where it was, or nobody tried yet.
    """

    fingerprint: tuple[int, int, int, int, int]
    taken_ns: int
    copy: Path | None
    object: str | None = None
    failure: ReliveError | None = None
    part: FilePart | None = None

    @property
    def is_lost(self) -> bool:
        """It was staged for a commit that failed."""
        return self.copy is not None and not self.copy.exists()


@dataclass(frozen=True, slots=True)
class NamedPath:
    """A path where an ``os.DirEntry`` is expected."""

    path: str

    def stat(self, *, follow_symlinks: bool) -> os.stat_result:
        return os.stat(self.path, follow_symlinks=follow_symlinks)


_Facts = tuple[int, int, int, int, int, int, int]  # inode, mode, uid, gid, size, mtime_ns, ctime_ns
ScannedEntry = tuple[FileEntry, CapturedFile | None]


class EntrySource(Protocol):
    """Where entries of a layer came from."""

    @property
    def point(self) -> str:
        """The mount point, as the target sees it."""

    @property
    def kind(self) -> LayerKind:
        """How the layer comes back."""

    @property
    def left_out(self) -> list[str]:
        """Paths that the last commit does not hold though it should, each with the reason after a tab."""

    def forget(self, lost: Collection[CapturedFile]) -> None:
        """Copy files anew next time, since copies of them are lost."""


@dataclass(slots=True)
class LayerScanner:
    """Keeps what was copied of one directory, so that the next capture copies only what changed.

    Not for use by several threads at once.

    Attributes:
        largest: files of more bytes are left out; None: no limit.
        merged: the mounted overlay, where another than Relive made it: with ``metacopy`` a file of the upper directory may have
            its bytes in a lower one, with ``redirect_dir`` a directory its children. None: the upper directory has all.
        left_out: "path<TAB>reason" of what the last scan could not take.
    """

    directory: Path
    known: dict[str, CapturedFile] = field(default_factory=dict)
    largest: int | None = None
    merged: Path | None = None
    left_out: list[str] = field(default_factory=list)
    _described: dict[str, tuple[_Facts, int, FileEntry]] = field(default_factory=dict)
    _counter: int = 0
    _small: SmallFiles | None = None
    _redirected: set[str] = field(default_factory=set)

    def scan(
        self, staging: Path, always: Collection[str] = (), skip: Collection[str] = ()
    ) -> list[ScannedEntry]:
        """Describe everything below the directory and copy into ``staging`` the files that changed.

        Args:
            staging: an existing directory on the store's file system.
            always: relative paths of files that are copied whatever their times, their size or ``skip`` say.
            skip: relative paths left out with all below them.

        Returns:
            Entries in path order, parents before children, each with its content if it is a file. The entry's
            ``object`` is None: the content gets its name when it is stored.

        Raises:
            OSError: the disk is full, or reading failed. Files that vanish meanwhile are no error.
        """
        entries: list[FileEntry] = []
        pending = [""]
        while pending:
            below = pending.pop()
            entries.extend(self._scan_directory(below, staging, always, skip, pending))
        entries.extend(self._scan_skipped(staging, always, {entry.path for entry in entries}))
        entries.sort(key=lambda entry: entry.path)
        self._forget_all_but(entries)
        return [(entry, self.known.get(entry.path)) for entry in entries]

    def _forget_all_but(self, entries: Collection[FileEntry]) -> None:
        """What is remembered of other paths, and the content of a file where something else is now, or nothing."""
        present = {entry.path: entry.kind for entry in entries}
        for path in [path for path in self._described if path not in present]:
            del self._described[path]
        for path in [path for path in self.known if present.get(path) is not EntryKind.FILE]:
            del self.known[path]

    def _place_of(self, below: str) -> Path:
        """The directory in which a path's children stand."""
        if self.merged is None or not self._redirected:
            return self.directory
        parts = below.split("/")
        is_redirected = any("/".join(parts[: count + 1]) in self._redirected for count in range(len(parts)))
        return self.merged if is_redirected else self.directory

    def is_still_there(self, path: str) -> bool:
        """The file that was copied last is at its relative path now, not another one."""
        known = self.known.get(path)
        try:
            return known is not None and (self.directory / path).lstat().st_ino == known.fingerprint[1]
        except OSError:
            return False

    def forget(self, lost: Collection[CapturedFile]) -> None:
        """Copy files anew next time, since copies of them are lost. May be called by any thread."""
        gone = {id(one) for one in lost}
        for path in [path for path, known in list(self.known.items()) if id(known) in gone]:
            self.known.pop(path, None)

    def _scan_directory(
        self, below: str, staging: Path, always: Collection[str], skip: Collection[str], pending: list[str]
    ) -> list[FileEntry]:
        entries = []
        top = self._place_of(below)
        try:
            children = list(os.scandir(top / below if below else top))
        except (FileNotFoundError, NotADirectoryError):
            return []
        for child in children:
            path = f"{below}/{child.name}" if below else child.name
            if path in skip:
                continue
            try:
                entry = self._describe(child, path, staging, path in always)
            except FileNotFoundError:
                continue
            if entry is None:
                continue
            entries.append(entry)
            if entry.kind is EntryKind.DIRECTORY:
                pending.append(path)
        return entries

    def _scan_skipped(self, staging: Path, always: Collection[str], present: set[str]) -> list[FileEntry]:
        """What of ``always`` lies in places that were left out, with the directories that lead there."""
        entries: list[FileEntry] = []
        for wanted in always:
            names = wanted.split("/")
            for path in ("/".join(names[:count]) for count in range(1, len(names) + 1)):
                if path in present:
                    continue
                try:
                    entry = self._describe(
                        NamedPath(str(self.directory / path)), path, staging, path in always
                    )
                except (FileNotFoundError, NotADirectoryError):
                    break
                if entry is None:
                    break
                present.add(path)
                entries.append(entry)
        return entries

    def _describe(
        self, child: os.DirEntry[str] | NamedPath, path: str, staging: Path, always: bool
    ) -> FileEntry | None:
        facts = child.stat(follow_symlinks=False)
        kind = kind_of(facts)
        if kind is None:
            return None  # a device node: branches have their own
        if (
            kind is EntryKind.FILE
            and not always
            and self.largest is not None
            and facts.st_size > self.largest
        ):
            return None
        if kind is EntryKind.FILE:
            self._save_content(child.path, path, facts, staging, always)
        return self._entry(child.path, path, kind, facts)

    def _entry(self, source: str, path: str, kind: EntryKind, facts: os.stat_result) -> FileEntry:
        """The entry of a path; the one of an earlier scan if nothing about it has changed (time spent while stopped)."""
        inode = (facts.st_ino, facts.st_mode, facts.st_uid, facts.st_gid)
        now: _Facts = (*inode, facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns)
        known = self._described.get(path)
        if known is not None and known[0] == now and facts.st_ctime_ns + CLOCK_GRAIN_NS < known[1]:
            return known[2]
        described_ns = time.time_ns()
        entry = _describe_entry(source, path, kind, facts)
        if self.merged is not None and kind is EntryKind.DIRECTORY and _has_attribute(source, _REDIRECT):
            self._redirected.add(path)
            entry = entry.model_copy(update={"opaque": True})
        self._described[path] = (now, described_ns, entry)
        return entry

    def _save_content(
        self, source: str, path: str, facts: os.stat_result, staging: Path, always: bool
    ) -> None:
        fingerprint = (facts.st_dev, facts.st_ino, facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns)
        known = self.known.get(path)
        if known is not None and not always and known.fingerprint == fingerprint:
            changed_ns = max(facts.st_mtime_ns, facts.st_ctime_ns)
            if changed_ns + CLOCK_GRAIN_NS < known.taken_ns:
                return
        taken_ns = time.time_ns()
        if self.merged is not None and _has_attribute(source, _METACOPY):
            source = str(self.merged / path)
        small = self._small_files(staging)
        if facts.st_size <= SMALL_MOST and (part := small.add(source)) is not None:
            self.known[path] = CapturedFile(fingerprint, taken_ns, small.path, part=part)
            return
        self._counter += 1
        copy = staging / f"{self._counter:08}"
        copy_file(source, copy)
        self.known[path] = CapturedFile(fingerprint, taken_ns, copy)

    def _small_files(self, staging: Path) -> SmallFiles:
        """Both looks of a commit have the same."""
        if self._small is None or self._small.path.parent != staging:
            self._counter += 1
            self._small = SmallFiles(staging / f"{self._counter:08}.small")
        return self._small


@dataclass(slots=True)
class LayerSource:
    """A directory whose content belongs to the commit.

    Attributes:
        point: where the target sees it.
        scanner: what reads it, and remembers what it copied last.
        skip: paths below it, relative, that are left out.
        always: paths below it that are committed whatever ``skip`` or the scanner's limits say.
    """

    point: str
    kind: LayerKind
    scanner: LayerScanner
    skip: frozenset[str] = frozenset()
    always: frozenset[str] = frozenset()

    @property
    def left_out(self) -> list[str]:
        """What the scanner tells; of a capsule's nothing: what is too large there is no file of its own."""
        return self.scanner.left_out

    def forget(self, lost: Collection[CapturedFile]) -> None:
        """Copy files anew next time, since copies of them are lost."""
        self.scanner.forget(lost)

    def forget_lost_copies(self) -> None:
        """Those that were staged for a failed commit are gone; what the store has stays known."""
        self.scanner.forget([known for known in [*self.scanner.known.values()] if known.is_lost])


def _describe_entry(source: str, path: str, kind: EntryKind, facts: os.stat_result) -> FileEntry:
    attributes = {} if kind in (EntryKind.LINK, EntryKind.WHITEOUT) else attributes_of(source)
    opaque = attributes.pop(_OPAQUE, "") == b"y".hex()
    return entry_of(
        path,
        kind,
        facts,
        link=os.readlink(source) if kind is EntryKind.LINK else None,
        opaque=opaque,
        attributes={
            name: value for name, value in attributes.items() if not name.startswith(_OVERLAY_PREFIX)
        },
    )


def _has_attribute(path: str, name: str) -> bool:
    try:
        os.getxattr(path, name, follow_symlinks=False)
    except OSError:
        return False
    return True


def kind_of(facts: os.stat_result) -> EntryKind | None:
    """What an entry of a layer would be; None for devices, of which branches have their own."""
    mode = facts.st_mode
    if stat.S_ISREG(mode):
        return EntryKind.FILE
    if stat.S_ISDIR(mode):
        return EntryKind.DIRECTORY
    if stat.S_ISLNK(mode):
        return EntryKind.LINK
    if stat.S_ISFIFO(mode):
        return EntryKind.PIPE
    if stat.S_ISSOCK(mode):
        return EntryKind.SOCKET
    if stat.S_ISCHR(mode) and facts.st_rdev == 0:
        return EntryKind.WHITEOUT
    return None


def attributes_of(path: str, *, follow: bool = False) -> dict[str, str]:
    """Extended attributes by name, values in hexadecimal; none where the file system has none. Raises OSError."""
    try:
        return {
            name: os.getxattr(path, name, follow_symlinks=follow).hex()
            for name in os.listxattr(path, follow_symlinks=follow)
        }
    except OSError as error:
        if error.errno in (errno.ENOTSUP, errno.ENODATA):
            return {}
        raise


def copy_file(source: str | Path, target: Path, *, follow: bool = False) -> None:
    """Copy a file's bytes (copy_file_range shares the blocks where the file system can).

    Args:
        follow: go through a symbolic link, as those in /proc/PID/fd are.

    Raises:
        OSError: as open(2), copy_file_range(2); ELOOP for a link that is not to be followed.
    """
    reading = os.open(source, os.O_RDONLY | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW))
    try:
        writing = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            _copy_bytes(reading, writing)
        finally:
            os.close(writing)
    finally:
        os.close(reading)


def _copy_bytes(reading: int, writing: int) -> None:
    """Holes stay holes. What is written to the file meanwhile may be in the copy or not."""
    size = os.fstat(reading).st_size
    os.ftruncate(writing, size)
    end = 0
    while end < size:
        try:
            begin = os.lseek(reading, end, os.SEEK_DATA)
            end = os.lseek(reading, begin, os.SEEK_HOLE)
        except OSError as error:
            if error.errno == errno.ENXIO:
                return  # nothing but a hole is left
            begin, end = end, size  # a file system without holes
        _copy_range(reading, writing, begin, end)


def _copy_range(reading: int, writing: int, begin: int, end: int) -> None:
    while begin < end:
        step = min(end - begin, _COPY_STEP)
        try:
            moved = os.copy_file_range(reading, writing, step, begin, begin)
        except OSError as error:
            if error.errno not in (errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP):
                raise
            os.lseek(writing, begin, os.SEEK_SET)
            moved = os.sendfile(writing, reading, begin, step)
        if moved == 0:
            return  # it has become shorter
        begin += moved
