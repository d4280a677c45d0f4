"""The files of a branch: what they are made of, and how CRIU is told of them.

``HostRoot`` is that of a process tree: the host's files, below the commit's, below an empty layer. That of a container
is in ``containers.restore.container_root``. The methods are called by the thread that builds the branch, in the order
in which they stand here.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from relive.checkpoint import criu_rpc_pb2 as rpc
from relive.kernel.mounts import pivot_root
from relive.model.branch import MissingFile
from relive.model.commit import CommitId
from relive.sandbox.branch_plan import BranchPlan
from relive.sandbox.changed_files import Change, LaterFiles
from relive.sandbox.directory_times import DirectoryTimes
from relive.sandbox.init_process import FirstProcess
from relive.sandbox.inode_numbers import InodeNumbers
from relive.sandbox.kept_logs import make_kept_logs
from relive.sandbox.preserved_files import preserve_files
from relive.sandbox.proc_lockdown import close_proc
from relive.sandbox.rootfs import IO_DIRECTORY, CoveredPoint, RootBuilder

__all__ = ["BranchRoot", "HostRoot", "copy_tree"]

_AT_ONCE = 1 << 24  # [bytes]


class BranchRoot(Protocol):
    """What a branch stands on. Every method may raise OSError; the branch ends then."""

    @property
    def is_container(self) -> bool:
        """The processes get namespaces of their own within those of the branch."""

    @property
    def io(self) -> Path:
        """Directory of the branch's logs, from ``mount`` until ``enter``."""

    @property
    def devices(self) -> Path:
        """The /dev whose terminals the processes will see, from ``mount`` until ``enter``."""

    @property
    def numbered(self) -> set[str]:
        """Paths of the files that have the inode numbers which they had, from ``mount`` on."""

    def mount(self, first: FirstProcess) -> None:
        """Mount what can be mounted before the images are laid out."""

    @property
    def missing_files(self) -> list[MissingFile]:
        """Paths that the branch cannot have as they were."""

    def fit(self, commit: CommitId, images: Path, plan: BranchPlan) -> BranchPlan:
        """Make the images that are laid out fit for it; returns the plan with what this ground adds.

        Raises:
            RestoreUnsupported, ObjectMissing, ObjectCorrupt: the commit cannot come to life on it.
        """

    def prepare(self, images: Path) -> None:
        """Mount the rest."""

    @property
    def held(self) -> list[int]:
        """Descriptors, for the caller to close, that process 1 of the branch keeps open for as long as it lives."""

    def enter(self) -> None:
        """Make it the root of the branch's mount namespace, where CRIU restores into that."""

    def listening_place(self, name: bytes) -> Path:
        """Where a unix datagram socket has to be bound that the processes know by this path."""

    def set_criu_options(self, options: rpc.Options, network: int) -> None:
        """Add to CRIU's options; ``network`` is a descriptor of the branch's network namespace, which CRIU inherits."""

    def files_opened(self) -> None:
        """CRIU has opened all files and removed what it made for that; nothing of the branch has run."""

    def release(self) -> None:
        """Let go of what is needed only while it is built; whatever became of that."""

    def close(self, root: int) -> None:
        """Just before the processes run: leave them no way to the host.

        Args:
            root: pid of the restored root, in the PID namespace of the branch.
        """


@dataclass(frozen=True, slots=True)
class HostRoot:
    """See ``BranchRoot``.

    Attributes:
        directory: the branch's.
        covered: mount points, each with the directories of files that lie over the host's, the uppermost first.
        memory_layers: (mount point, directory) of committed files that go into file systems of their own.
        later: what the service changed after the commit, and laid: what of it lies in those directories.
        inode_numbers: those that files of the commit shall have, by path.
        numbered: the paths that have them.
    """

    directory: Path
    home: Path
    tools: Path
    covered: list[tuple[CoveredPoint, list[Path]]]
    memory_layers: list[tuple[str, Path]]
    later: LaterFiles
    laid: dict[str, Change]
    inode_numbers: Mapping[str, int]
    numbered: set[str] = field(default_factory=set)
    _lines: list[int] = field(default_factory=list)
    _times: list[DirectoryTimes] = field(default_factory=list)

    @property
    def is_container(self) -> bool:
        return False

    @property
    def io(self) -> Path:
        return self._inside(IO_DIRECTORY)

    @property
    def devices(self) -> Path:
        return self._inside(Path("/dev"))

    def _inside(self, path: Path) -> Path:
        return self.directory / "root" / path.relative_to("/")

    def mount(self, first: FirstProcess) -> None:
        builder = RootBuilder(self.directory, home=self.home, tools=self.tools, devices=False)
        numbers = InodeNumbers.mounted(self.directory / "numbers", self.inode_numbers)
        for point, committed in self.covered:
            self.numbered.update(builder.cover(point, committed, numbers))
        points = [(point.point, builder.upper(point)) for point, _ in self.covered]
        mounted = [(point, upper) for point, upper in points if upper.is_dir()]
        uppers = [(builder.upper(point), committed) for point, committed in self.covered]
        self._times.append(DirectoryTimes([one for one in uppers if one[0].is_dir()]))
        line = preserve_files(self.later, self.laid, mounted, builder.inside)
        if line is not None:
            self._lines.append(line.detach())
        builder.own_devices()
        builder.own_run()
        for place, tree in self.memory_layers:
            copy_tree(tree, builder.inside(place))
        builder.share_standard_streams(self.directory / "io")
        builder.share_recorder(self.directory / "rings")
        builder.hide_home()
        first.mount_proc(builder.inside("/proc"))

    @property
    def missing_files(self) -> list[MissingFile]:
        return self.later.missing

    def fit(self, commit: CommitId, images: Path, plan: BranchPlan) -> BranchPlan:  # noqa: ARG002 - of ``BranchRoot``
        make_kept_logs(images, self.directory / "io")
        return plan

    def prepare(self, images: Path) -> None:
        """Nothing is left."""

    @property
    def held(self) -> list[int]:
        return self._lines

    def enter(self) -> None:
        pivot_root(self.directory / "root")

    def listening_place(self, name: bytes) -> Path:
        path = Path(os.fsdecode(name))
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def set_criu_options(self, options: rpc.Options, network: int) -> None:
        """Nothing: it restores into what the caller sees."""

    def files_opened(self) -> None:
        for times in self._times:
            times.put_back()

    def release(self) -> None:
        for times in self._times:
            times.close()

    def close(self, root: int) -> None:  # noqa: ARG002 - of ``BranchRoot``; here all processes see the caller's mounts
        close_proc()


def copy_tree(source: Path | str, target: Path | str) -> None:
    """Copy what is in a laid-out layer with owners, modes and times; of sockets and FIFOs the names, which CRIU fills with life."""
    with os.scandir(source) as entries:
        for entry in entries:
            facts, here = entry.stat(follow_symlinks=False), f"{target}/{entry.name}"
            kind, there = stat.S_IFMT(facts.st_mode), _kind_of(here)
            if kind == stat.S_IFDIR:
                if there is None:
                    os.mkdir(here)  # noqa: PTH102 - texts: a branch waits for this
                elif there != stat.S_IFDIR:
                    continue  # an upper layer has something else; through a link it would be written elsewhere
                copy_tree(entry.path, here)
                _copy_facts(facts, here)
                continue
            if there is not None or kind == stat.S_IFCHR:
                continue  # an upper layer has it; a whiteout, with nothing below it
            if kind == stat.S_IFREG:
                _copy_file(entry.path, here, facts)
                continue
            if kind == stat.S_IFLNK:
                shutil.copy2(entry.path, here, follow_symlinks=False)
            else:
                os.mknod(here, kind | 0o600)
            _copy_facts(facts, here)


def _copy_file(source: str, target: str, facts: os.stat_result) -> None:
    """A new file; shutil takes five times as long for one, and a branch waits for dozens."""
    reading = os.open(source, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        writing = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            while os.sendfile(writing, reading, None, _AT_ONCE):
                pass
            for name in os.listxattr(reading):
                with contextlib.suppress(OSError):  # of a kind that the file system here does not have
                    os.setxattr(writing, name, os.getxattr(reading, name))
            os.fchown(writing, facts.st_uid, facts.st_gid)
            os.fchmod(writing, stat.S_IMODE(facts.st_mode))
            os.utime(writing, ns=(facts.st_atime_ns, facts.st_mtime_ns))
        finally:
            os.close(writing)
    finally:
        os.close(reading)


def _kind_of(path: str) -> int | None:
    """What is there, as S_IFMT has it; None: nothing."""
    try:
        return stat.S_IFMT(os.lstat(path).st_mode)
    except FileNotFoundError:
        return None


def _copy_facts(facts: os.stat_result, target: str) -> None:
    os.chown(target, facts.st_uid, facts.st_gid, follow_symlinks=False)
    if not stat.S_ISLNK(facts.st_mode):
        os.chmod(target, stat.S_IMODE(facts.st_mode))  # noqa: PTH101
