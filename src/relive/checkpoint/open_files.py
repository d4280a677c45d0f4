"""Files of a process that was not started in a capsule: those it has open, copied beside its memory.

Without an overlay there is no list of what it wrote, so this is the least that a restore needs: regular files open for
writing or mapped shared, and others it reads that do not belong to the system. What it wrote and closed stays on the host.
"""

from __future__ import annotations

import contextlib
import os
import stat
import time
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path

from relive.checkpoint.expected_files import EXPECTED_MOST, ExpectedFiles, is_settled
from relive.checkpoint.file_entries import entry_of
from relive.checkpoint.file_layers import copy_file
from relive.checkpoint.open_paths import shared_writable_paths
from relive.images.file_numbers import FileNumbers
from relive.kernel import procfs
from relive.kernel.leases import LEASED, leased_files
from relive.model.commit import EntryKind, FileEntry

__all__ = ["OpenFiles", "opened_files"]

_SYSTEM = ("/usr/", "/lib", "/bin/", "/sbin/", "/etc/", "/proc/", "/sys/", "/dev/", "/memfd:", "/SYSV")
_PLAIN_KINDS = (
    (stat.S_ISLNK, EntryKind.LINK),
    (stat.S_ISFIFO, EntryKind.PIPE),
    (stat.S_ISSOCK, EntryKind.SOCKET),
)
_NEVER = ("/proc/", "/sys/", "/dev/", "/memfd:", "/SYSV")


@dataclass(slots=True)
class OpenFiles:
    """Collects copies of a tree's open files.

    Attributes:
        home: Relive's, as ``opened_files`` has it.
        entries: what to put over the host's files in a branch, parents before children.
        copies: path (relative to the root) to the copy of its content.
        left_out: "path<TAB>reason" of open files that were not copied.
        file_numbers: by absolute path, of what was copied.
    """

    limit: int
    home: Path
    entries: dict[str, FileEntry] = field(default_factory=dict)
    copies: dict[str, Path] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)
    file_numbers: dict[str, FileNumbers] = field(default_factory=dict)
    _used: int = 0
    _leased: frozenset[tuple[int, int]] = field(default_factory=leased_files)

    def collect(self, root: int, staging: Path) -> None:
        """Copy the files that the tree of ``root`` has open now; call it while the tree is stopped.

        Raises:
            OSError: the disk is full.
        """
        self._leased = leased_files()
        for name, source in opened_files(root, self.home).items():
            self._copy(name, source, staging)

    def expect(self, root: int, staging: Path) -> ExpectedFiles | None:
        """Copy them while the process runs; what makes the copies good for a later moment, or None where nothing does.

        Raises:
            OSError: the disk is full.
        """
        calls, looked_ns = procfs.write_calls(root), time.time_ns()
        processes = procfs.tree_of(root)
        if len(processes) != 1:
            return None  # the calls of one process are counted
        if calls is None or shared_writable_paths(processes):
            return None  # writing through a mapping does not move a file's times
        opened = _regular(root)
        if len(opened) > EXPECTED_MOST or not all(is_settled(facts, looked_ns) for facts in opened.values()):
            return None
        self.collect(root, staging)
        found = ExpectedFiles(frozenset(opened))
        found.no_writing(calls)
        for number, facts in opened.items():
            found.same(f"/proc/{root}/fd/{number}", facts, follow=True)
        return found if not self.left_out and self._expect_parents(found) else None

    def _expect_parents(self, found: ExpectedFiles) -> bool:
        for path, entry in self.entries.items():
            if entry.kind is EntryKind.DIRECTORY:
                looked_ns, facts = time.time_ns(), Path("/", path).stat()
                if entry_of(path, EntryKind.DIRECTORY, facts) != entry or not is_settled(facts, looked_ns):
                    return False
                found.same(f"/{path}", facts, follow=True)
        return True

    def discard(self) -> None:
        """Remove the copies: the files are to be copied once more."""
        for copy in self.copies.values():
            copy.unlink(missing_ok=True)

    def add_path(self, path: Path, staging: Path) -> bool:
        """Copy a file, or a directory with all below it, by name; tells whether all of it was taken.

        A directory of which all was taken hides in a branch what the host has put into it since: it is as it was. One of which
        something was left out lies over the host's.
        """
        try:
            facts = path.lstat()
        except FileNotFoundError:  # its deletion was quicker, so that it was not there
            return True
        for test, kind in _PLAIN_KINDS:
            if test(facts.st_mode):
                link = os.readlink(path) if kind is EntryKind.LINK else None
                self._parents(str(path))
                self.entries[str(path).lstrip("/")] = entry_of(str(path).lstrip("/"), kind, facts, link=link)
                return True
        if stat.S_ISREG(facts.st_mode):
            return self._copy(str(path), path, staging)
        if not stat.S_ISDIR(facts.st_mode) or path.is_mount():
            return False  # a device, or what a layer of this file system cannot hide
        self._parents(str(path / "x"))
        # Each, also behind one that is not.
        taken = [self.add_path(child, staging) for child in sorted(path.iterdir())]
        if all(taken):
            name = str(path).lstrip("/")
            self.entries[name] = self.entries[name].model_copy(update={"opaque": True})
        return all(taken)

    def _copy(self, name: str, source: Path, staging: Path) -> bool:
        """Whether it is among the copies now."""
        path = name.lstrip("/")
        if path in self.copies:
            return True
        if name.startswith(_NEVER):
            return False
        try:
            facts = source.stat()
        except OSError:
            return False
        if (facts.st_dev, facts.st_ino) in self._leased:
            self.left_out.append(f"{name}\t{LEASED}")
            return False
        if self._used + facts.st_size > self.limit:
            self.left_out.append(f"{name}\tit would exceed open_file_limit")
            return False
        copy = staging / f"open-{len(self.copies):06}"
        copy_file(source, copy, follow=True)
        self._used += facts.st_size
        self.copies[path] = copy
        self._parents(name)
        self.entries[path] = entry_of(path, EntryKind.FILE, facts)
        self.file_numbers[name] = FileNumbers(facts.st_dev, facts.st_ino)
        return True

    def _parents(self, name: str) -> None:
        for parent in reversed(Path(name).parents):
            path = str(parent).lstrip("/")
            if path and path not in self.entries:
                self.entries[path] = entry_of(path, EntryKind.DIRECTORY, parent.stat())


def opened_files(
    root: int, home: Path, *, mapped: bool = True, volumes: Collection[str] = ()
) -> dict[str, Path]:
    """Where to read the regular files that the tree of ``root`` has open, and a restore needs, by their names.

    Args:
        home: Relive's. What lies there is no file of the tree: while CRIU saves a process, that has CRIU's log open.
        mapped: also those that are mapped shared and writable.
        volumes: directories, without symbolic links, in which nothing belongs to the system, wherever they are.
    """
    found: dict[str, Path] = {}
    below = tuple(f"{one}/" for one in volumes)
    for pid in procfs.tree_of(root):
        for link in procfs.descriptors_of(pid):
            for name, source in _considered(link, below):
                found.setdefault(name, source)
        for mapping in procfs.read_maps(pid) if mapped else ():
            if mapping.path.startswith("/") and mapping.permissions[1:] == "w-s":
                found.setdefault(mapping.path, Path(f"/proc/{pid}/root{mapping.path}"))
    never = (*_NEVER, f"{home.resolve()}/")
    return {name: source for name, source in found.items() if not name.startswith(never)}


def _regular(pid: int) -> dict[int, os.stat_result]:
    """Of each descriptor for a regular file what that is."""
    found = {}
    for link in procfs.descriptors_of(pid):
        with contextlib.suppress(OSError):
            facts = link.stat()
            if stat.S_ISREG(facts.st_mode):
                found[int(link.name)] = facts
    return found


def _considered(link: Path, volumes: tuple[str, ...]) -> list[tuple[str, Path]]:
    """``volumes``: with a slash behind each."""
    try:
        name, facts = os.readlink(link), link.stat()
        flags = int((link.parent.parent / "fdinfo" / link.name).read_text().split("flags:")[1].split()[0], 8)
    except (OSError, IndexError, ValueError):
        return []
    # A namespace (nsfs) counts as a regular file.
    if not stat.S_ISREG(facts.st_mode) or not name.startswith("/"):
        return []
    if name.endswith(" (deleted)"):
        # CRIU saves deleted files itself, but of one that has another name it saves only that (link_remap).
        return [(other, Path(other)) for other in _names_beside(name, facts)] if facts.st_nlink else []
    is_system = name.startswith(_SYSTEM) and not name.startswith(volumes)
    if flags & os.O_ACCMODE == os.O_RDONLY and is_system:
        return []
    return [(name, link)]


def _names_beside(name: str, facts: os.stat_result) -> list[str]:
    """Names in the directory of a deleted file that lead to the same inode."""
    try:
        with os.scandir(os.path.dirname(name)) as children:  # noqa: PTH120 - the name of a file that is no more
            return [
                child.path
                for child in children
                if child.inode() == facts.st_ino and child.stat(follow_symlinks=False).st_dev == facts.st_dev
            ]
    except OSError:
        return []
