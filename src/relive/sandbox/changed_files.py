"""What a branch gets of files that its service changed after the commit, and that the commit does not hold.

The host's files lie below a branch. What the service touched before the commit is in the commit. For what it touched for the
first time only afterwards, in that life or a later one of the same capsule, the journal of that life tells what was there before,
and has a copy of it. Of several records of a path the earliest counts: the commit saw what was there then.

``plan_changes`` decides, ``lay_changes`` makes a directory tree that is mounted between the commit's files and the host's.
"""

from __future__ import annotations

import os
import shutil
import socket
import stat
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from relive.checkpoint.file_layers import attributes_of, copy_file
from relive.checkpoint.journal import JournalReader, JournalRecord, RecordKind, check_version
from relive.config import Settings
from relive.model.branch import MissingFile
from relive.model.capsule import CapsuleFacts
from relive.model.commit import EntryKind, LayerKind, Manifest, TargetKind
from relive.model.life_paths import LifePaths

__all__ = ["Change", "CommittedPaths", "LaterFiles", "lay_change", "lay_changes", "plan_changes"]

_ABSENT = frozenset({RecordKind.ABSENT, RecordKind.MOVED, RecordKind.AGAIN})
_WITH_BASES = (RecordKind.REGULAR, RecordKind.DIRECTORY)
_OPAQUE = "trusted.overlay.opaque"
_NOT_KEPT = "it was not kept"
_NO_JOURNAL = "what the service changed after the commit is not known: the directory of that life is gone"


@dataclass(frozen=True, slots=True)
class Change:
    """What was at a path at the moment of the commit.

    Attributes:
        base: a file with its content, of a regular file; of a directory, one with its extended attributes, if it had some.
        hides: a directory in whose place another one with all it holds was moved later; of that nothing is to be seen.
        is_held: the commit holds the directory itself.
    """

    record: JournalRecord
    base: Path | None
    hides: bool = False
    is_held: bool = False

    @property
    def is_absent(self) -> bool:
        """Nothing was there."""
        return self.record.kind in _ABSENT and not self.is_held

    @property
    def is_directory(self) -> bool:
        """A directory was there."""
        return self.is_held or self.record.kind is RecordKind.DIRECTORY


class CommittedPaths:
    """The paths that a commit holds."""

    def __init__(self, manifest: Manifest) -> None:
        self._kinds: dict[str, EntryKind] = {}
        self._opaque: set[str] = set()
        self._points = {layer.point for layer in manifest.layers}
        self.left_out: dict[str, str] = {}
        for layer in manifest.layers:
            if layer.kind not in (LayerKind.OVERLAY, LayerKind.TMPFS):
                continue
            top = layer.point.rstrip("/") + "/"
            for entry in layer.entries:
                self._kinds[top + entry.path] = entry.kind
                if entry.opaque:
                    self._opaque.add(top + entry.path)
            for line in layer.left_out:
                path, _, reason = line.partition("\t")
                self.left_out[f"/{path.lstrip('/')}"] = reason

    @property
    def absent(self) -> list[str]:
        """The paths of which it says that nothing is there."""
        return [path for path, kind in self._kinds.items() if kind is EntryKind.WHITEOUT]

    def is_directory(self, path: str) -> bool:
        """It holds a directory of that path."""
        return self._kinds.get(path) is EntryKind.DIRECTORY

    def decides(self, path: str) -> bool:
        """The commit says what is there: it holds the path, or something above it under which nothing of the host shows.

        A mount point is in no layer, and was there all the same.
        """
        if path in self._kinds or path in self._points:
            return True
        above = path
        while above != "/":
            above = above.rpartition("/")[0] or "/"
            kind = self._kinds.get(above)
            if above in self._opaque or kind not in (None, EntryKind.DIRECTORY):
                return True
        return False


def plan_changes(
    held: CommittedPaths, lives: Iterable[tuple[Path, Sequence[JournalRecord]]]
) -> tuple[dict[str, Change], list[MissingFile]]:
    """What has to be laid over the host's files, by path, ancestors first, and what is lost.

    Args:
        lives: for the commit's own life and each later one, oldest first: the directory of its bases, and its records since the
            commit, in the order of their times.
    """
    earliest: dict[str, Change] = {}
    moved: set[str] = set()
    for bases, records in lives:
        for record in records:
            known = earliest.get(record.path)
            is_moved = record.kind is RecordKind.MOVED
            if is_moved:
                moved.add(record.path)
            if known is not None:
                if is_moved and known.is_directory:
                    earliest[record.path] = replace(known, hides=True)
            elif record.path in held.left_out or (moved and _is_below(record.path, moved)):
                continue
            elif not held.decides(record.path):
                base = bases / str(record.serial) if record.kind in _WITH_BASES else None
                earliest[record.path] = Change(record, base)
            elif is_moved and held.is_directory(record.path):
                earliest[record.path] = Change(record, None, hides=True, is_held=True)
    changes: dict[str, Change] = {}
    missing = [MissingFile(path=path, reason=reason) for path, reason in held.left_out.items()]
    for path in sorted(earliest):
        change = earliest[path]
        if _is_below_nothing(path, changes):
            continue
        if change.record.kind is RecordKind.GONE:
            missing.append(MissingFile(path=path, reason=change.record.second or _NOT_KEPT))
        elif change.record.kind is RecordKind.NOTED or not _is_whole(change):
            missing.append(MissingFile(path=path, reason=_NOT_KEPT))
        else:
            changes[path] = change
    return changes, missing


def _is_whole(change: Change) -> bool:
    """The base is there, as long as the file was."""
    if change.record.kind is not RecordKind.REGULAR:
        return True
    try:
        return change.base is not None and change.base.stat().st_size == change.record.size
    except OSError:
        return False


def _is_below(path: str, tops: set[str]) -> bool:
    while path != "/":
        path = path.rpartition("/")[0] or "/"
        if path in tops:
            return True
    return False


def _is_below_nothing(path: str, changes: dict[str, Change]) -> bool:
    while path != "/":
        path = path.rpartition("/")[0] or "/"
        above = changes.get(path)
        if above is not None and not above.is_directory:
            return True
    return False


@dataclass(slots=True)
class LaterFiles:
    """The journals of a commit's own life and the later ones of its capsule, on this host.

    Attributes:
        missing: of what was read last.
    """

    settings: Settings
    manifest: Manifest
    held: CommittedPaths
    missing: list[MissingFile] = field(default_factory=list)
    _lives: list[tuple[LifePaths, JournalReader, list[JournalRecord]]] = field(default_factory=list)

    @classmethod
    def of(cls, settings: Settings, manifest: Manifest) -> LaterFiles:
        """Find what there is; nothing on a host on which the service did not run."""
        found = cls(settings, manifest, CommittedPaths(manifest))
        found._lives = [(paths, JournalReader(paths.files), []) for paths in _lives_since(settings, manifest)]
        return found

    @property
    def living(self) -> LifePaths | None:
        """The newest of the lives, which may go on; None: there is none."""
        return self._lives[-1][0] if self._lives else None

    def read(self) -> dict[str, Change]:
        """What is to be laid over the host's files as they are now; each time it is called, all of it.

        Raises:
            OSError: a journal cannot be read.
            CapsuleVersionUnknown: one is of another Relive.
        """
        lives = []
        for paths, journal, records in self._lives:
            if paths.files.is_dir():  # else it wrote to an overlay
                check_version(paths.files)
                records.extend(journal.read_new())
            is_own = paths.directory.name == self.manifest.target.life
            since = self.manifest.taken_monotonic_ns if is_own else -1
            later = sorted(
                (record for record in records if record.time_ns > since),
                key=lambda record: (record.time_ns, record.serial),
            )
            lives.append((paths.files / "base", later))
        changes, self.missing = plan_changes(self.held, lives)
        damaged = sum(journal.damaged for _, journal, _ in self._lives)
        if damaged:
            self.missing.append(MissingFile(path="/", reason=f"{damaged} records of its journal are damaged"))
        if not self._lives and self._is_own_host():
            self.missing.append(MissingFile(path="/", reason=_NO_JOURNAL))
        return changes

    def _is_own_host(self) -> bool:
        """The service ran here, so what it changed after the commit lies below the branch."""
        is_capsule = self.manifest.target.kind is TargetKind.CAPSULE
        return is_capsule and self.manifest.host.name == socket.gethostname()


def _lives_since(settings: Settings, manifest: Manifest) -> list[LifePaths]:
    """The commit's life and those that began after it, oldest first."""
    found: list[tuple[int, LifePaths]] = []
    for state in (settings.capsules / manifest.target.name).glob("*/state.json"):
        if state.parent.is_symlink():
            continue
        try:
            facts = CapsuleFacts.parse(state.read_bytes())
        except (OSError, ValueError):
            continue
        found.append((facts.started_wall_ns, LifePaths(state.parent)))
    found.sort(key=lambda one: one[0])
    names = [paths.directory.name for _, paths in found]
    if manifest.target.life not in names:
        return []
    return [paths for _, paths in found[names.index(manifest.target.life) :]]


def lay_changes(
    changes: dict[str, Change], points: Sequence[str], directory: Path, absent: Iterable[str] = ()
) -> dict[str, Path]:
    """Make a tree for each mount point that has some; returns them by mount point.

    Args:
        changes: as ``plan_changes`` returns them.
        points: mount points, of which the longest that fits counts.
        directory: an existing one, in which the trees are made.
        absent: paths of whiteouts that will lie above it.

    Raises:
        OSError: the disk is full.
    """
    trees: dict[str, Path] = {}
    times: list[tuple[Path, int]] = []

    def place(path: str) -> Path | None:
        fitting = [point for point in points if path.startswith(point.rstrip("/") + "/")]
        if not fitting:
            return None
        point = max(fitting, key=len)
        if point not in trees:
            trees[point] = directory / f"{len(trees):02}"
            trees[point].mkdir()
            times.append((trees[point], _copy_likeness(Path(point), trees[point])))
        target = trees[point] / path.removeprefix(point.rstrip("/") + "/")
        times.extend(_make_parents(target.parent, trees[point], Path(point)))
        return target

    for path, change in changes.items():
        # In a directory that lies in one layer alone, overlayfs lists whiteouts as names.
        if change.is_absent and not _is_on_host(path.rpartition("/")[0]):
            continue
        target = place(path)
        if target is None or os.path.lexists(target):
            continue
        if change.is_held:
            target.mkdir()  # the commit's lies over it
        else:
            lay_change(change, target, shares_base=True)
        if change.hides:
            os.setxattr(target, _OPAQUE, b"y")
        if change.is_directory:
            times.append((target, change.record.mtime_ns))
    for path in absent:
        if not _is_on_host(path.rpartition("/")[0]):
            place(path)
    for target, mtime_ns in reversed(times):  # making what lies in them has changed them
        os.utime(target, ns=(mtime_ns, mtime_ns))
    return trees


def lay_change(change: Change, target: Path, *, shares_base: bool = False) -> None:
    """Make what was at a path at ``target``, where nothing is; where nothing was, a whiteout.

    Args:
        shares_base: nobody writes to what is made (it is in a lower layer of overlays), so it may be the base itself.

    Raises:
        OSError: the disk is full.
    """
    record = change.record
    kind = stat.S_IFMT(record.mode)
    if change.is_absent:
        os.mknod(target, stat.S_IFCHR, os.makedev(0, 0))
        return
    if record.kind is RecordKind.REGULAR:
        assert change.base is not None
        if not (shares_base and _link(change.base, target)):
            copy_file(change.base, target)
            _copy_attributes(change.base, target)
    elif record.kind is RecordKind.DIRECTORY:
        target.mkdir()
        if change.base is not None and change.base.is_dir():
            _copy_attributes(change.base, target)
    elif record.kind is RecordKind.LINK:
        target.symlink_to(record.second)
    elif kind in (stat.S_IFIFO, stat.S_IFSOCK):
        os.mknod(target, kind | 0o600)
    else:
        return  # a device: branches have their own
    os.chown(target, record.uid, record.gid, follow_symlinks=False)
    if kind != stat.S_IFLNK:
        target.chmod(stat.S_IMODE(record.mode))
    os.utime(target, ns=(record.mtime_ns, record.mtime_ns), follow_symlinks=False)


def _link(base: Path, target: Path) -> bool:
    """Give a base another name; False where that cannot be, as on another file system."""
    try:
        target.hardlink_to(base)
    except OSError:
        return False
    return True


def _is_on_host(directory: str) -> bool:
    return os.path.isdir(directory) and os.path.realpath(directory) == directory  # noqa: PTH112 - many of them


def _copy_attributes(base: Path, target: Path) -> None:
    for name, value in attributes_of(str(base)).items():
        os.setxattr(target, name, bytes.fromhex(value))


def _make_parents(directory: Path, top: Path, host: Path) -> list[tuple[Path, int]]:
    """The directories between ``top`` and ``directory``, like those of the host; returned with their times [ns]."""
    missing = []
    while directory != top and not directory.is_dir():
        missing.append(directory)
        directory = directory.parent
    times = []
    for one in reversed(missing):
        one.mkdir()
        times.append((one, _copy_likeness(host / one.relative_to(top), one)))
    return times


def _copy_likeness(model: Path, copy: Path) -> int:
    """Returns the time of its last modification [ns]."""
    if model.is_dir() and not model.is_symlink():
        facts = model.stat()
        os.chown(copy, facts.st_uid, facts.st_gid)
        copy.chmod(stat.S_IMODE(facts.st_mode))
        shutil.copystat(model, copy)
    return copy.stat().st_mtime_ns
