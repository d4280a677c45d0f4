"""Files of a process that was not started in a capsule and is followed: those that it has changed since, and those it has open.

Copied as a capsule's are (``LayerScanner``): once while it runs and, while it stands still, what has changed in between.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from relive.checkpoint.file_layers import LayerScanner, NamedPath, ScannedEntry
from relive.checkpoint.open_files import opened_files
from relive.kernel.leases import LEASED, leased_files
from relive.model.commit import EntryKind, FileEntry

__all__ = ["Reported", "WatchedFiles", "WatchedScanner"]

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)


@dataclass(frozen=True, slots=True)
class Reported:
    """What is known of the files that a tree has changed, by absolute paths as it sees them.

    Attributes:
        trees: directories with all they hold.
        gaps: what is not known, as a layer's ``left_out`` has it.
    """

    paths: list[str]
    trees: list[str]
    gaps: list[str]


@dataclass(slots=True)
class WatchedFiles:
    """What one commit holds of the files of a tree, below all its mount points.

    Attributes:
        root: of the tree.
        followed: tells what it has changed up to now.
        named: files and directories that are held whatever happened to them.
        points: mount points, each of which has a scanner of its own.
        limit: bytes of all files together.
        home: Relive's, as ``opened_files`` has it.
        volumes: as ``opened_files`` has them.
        absent: paths that were changed and are not there, after a scan.
    """

    root: int
    followed: Callable[[], Reported]
    named: Collection[str]
    points: Collection[str]
    limit: int
    home: Path
    volumes: Collection[str] = ()
    absent: list[str] = field(default_factory=list)
    now: Reported = field(default_factory=lambda: Reported([], [], []))
    _opened: list[str] = field(default_factory=list)
    _leased: frozenset[tuple[int, int]] = frozenset()
    _used: int = 0

    def look(self) -> None:
        """See how it is at this moment."""
        self.now, self._opened, self._leased = (
            self.followed(),
            list(opened_files(self.root, self.home, mapped=False, volumes=self.volumes)),
            leased_files(),
        )
        self.absent, self._used = [], 0

    def changed(self, point: str) -> list[str]:
        """Paths below a point, relative to it, that are held if they are there, and held as gone if not."""
        return self._below(point, (*self.now.paths, *self.now.trees, *self.named))

    def whole(self, point: str) -> list[str]:
        """Those of which all that is below is held."""
        return self._below(point, (*self.now.trees, *self.named))

    def opened(self, point: str) -> list[str]:
        """Files that it has open; those that it has mapped come with each scan (``always``)."""
        return self._below(point, self._opened)

    def _below(self, point: str, paths: Iterable[str]) -> list[str]:
        return [path[len(point.rstrip("/")) + 1 :] for path in paths if self.point_of(path) == point]

    def point_of(self, path: str) -> str:
        """The mount point that an absolute path lies below."""
        fitting = (
            point for point in self.points if path == point or path.startswith(f"{point.rstrip('/')}/")
        )
        return max(fitting, key=len, default="/")

    def refusal(self, facts: os.stat_result) -> str | None:
        """Why a file is not copied; None: it is, and its bytes count."""
        if (facts.st_dev, facts.st_ino) in self._leased:
            return LEASED
        if self._used + facts.st_size > self.limit:
            return "it would exceed open_file_limit"
        self._used += facts.st_size
        return None


@dataclass(slots=True)
class WatchedScanner(LayerScanner):
    """One commit's look at the files below one mount point; ``known`` and ``_described`` may be those of the look before.

    Attributes:
        is_first: of the scanners that share ``files``, the one that looks anew.
        hides: what is gone has to be hidden, since the host's files are seen below.
    """

    point: str = "/"
    files: WatchedFiles = field(
        default_factory=lambda: WatchedFiles(0, lambda: Reported([], [], []), (), ("/",), 0, Path("/"))
    )
    is_first: bool = True
    hides: bool = True
    _entries: dict[str, FileEntry] = field(default_factory=dict)

    def scan(
        self, staging: Path, always: Collection[str] = (), skip: Collection[str] = ()
    ) -> list[ScannedEntry]:
        """See ``LayerScanner``; what belongs to another point is left out of itself, and nothing is to be skipped besides."""
        assert not skip
        if self.is_first:
            self.files.look()
        self._entries = {}
        self.left_out = list(self.files.now.gaps) if self.is_first else []
        for path in self.files.changed(self.point):
            self._add(path, staging, always, may_be_gone=True)
        for path in self.files.whole(self.point):
            self._add_below(path, staging, always)
        mapped = (path for path in always if self.files.point_of(self._absolute(path)) == self.point)
        for path in (*self.files.opened(self.point), *mapped):
            self._add(path, staging, always, may_be_gone=False)
        self._forget_all_but(self._entries.values())
        return [(entry, self.known.get(path)) for path, entry in sorted(self._entries.items())]

    def _absolute(self, path: str) -> str:
        return f"{self.point.rstrip('/')}/{path}"

    def _add(self, path: str, staging: Path, always: Collection[str], *, may_be_gone: bool) -> None:
        """A path with the directories that lead there; where it ends early, what is missing first was deleted."""
        names = path.split("/") if path else []
        for count in range(1, len(names) + 1):
            part = "/".join(names[:count])
            known = self._entries.get(part)
            if known is None:
                if not self._add_one(part, staging, always, may_be_gone=may_be_gone):
                    if may_be_gone:
                        self.files.absent.append(self._absolute(path))
                    return
                known = self._entries.get(part)
            if known is None or (count < len(names) and known.kind is not EntryKind.DIRECTORY):
                return

    def _add_one(self, path: str, staging: Path, always: Collection[str], *, may_be_gone: bool) -> bool:
        """False when it is not there."""
        place = self.directory / path
        try:
            facts = place.lstat()
            if stat.S_ISREG(facts.st_mode) and (reason := self.files.refusal(facts)) is not None:
                self.left_out.append(f"{self._absolute(path)[1:]}\t{reason}")
                return True
            entry = self._describe(NamedPath(str(place)), path, staging, path in always)
        except (FileNotFoundError, NotADirectoryError):
            if may_be_gone and self.hides:
                self._entries[path] = FileEntry(path=path, kind=EntryKind.WHITEOUT)
            return False
        except OSError as error:
            if error.errno in _NO_ROOM:
                raise
            self.left_out.append(f"{self._absolute(path)[1:]}\tit cannot be read: {error.strerror}")
            return True
        if entry is not None:
            self._entries[path] = entry
        return True

    def _add_below(self, path: str, staging: Path, always: Collection[str]) -> None:
        """All that a directory holds, as all that it holds: others' additions are not to be seen in a branch."""
        top = self._entries.get(path)
        if top is None or top.kind is not EntryKind.DIRECTORY:
            return
        pending = [path]
        while pending:
            below = pending.pop()
            if not os.path.ismount(self.directory / below):
                self._entries[below] = self._entries[below].model_copy(update={"opaque": True})
            for child in sorted(_children(self.directory / below)):
                part = f"{below}/{child}"
                if self.files.point_of(self._absolute(part)) != self.point:
                    continue  # another mount's, with a scanner of its own
                if part not in self._entries:
                    self._add_one(part, staging, always, may_be_gone=False)
                entry = self._entries.get(part)
                if entry is not None and entry.kind is EntryKind.DIRECTORY:
                    pending.append(part)


def _children(directory: Path) -> Iterable[str]:
    try:
        return os.listdir(directory)
    except OSError:
        return []
