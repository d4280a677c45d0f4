"""The root file system of a capsule or a branch.

A capsule's is the host's own (``share_host``): what the service writes is there at once, and stays. A branch's, and that of a
capsule with `--files overlay`, is made of overlays. ``plan_points`` decides which of the host's mounts are covered by one;
``RootBuilder`` mounts it all. What a process inside sees then:

- every disk or tmpfs mount of the host through an overlay, so that its writes go to a layer of its own;
- ``/run``: in a capsule the host's own (unix sockets are met there, and cannot be reached through an overlay), in a
  branch a private one;
- ``/dev/shm`` and POSIX queues of its own; ``/proc`` of its own PID namespace; ``/sys`` read-only in a branch;
- ``$RELIVE_HOME`` empty but for the tools; ``/run/relive/io`` with its standard output and error, ``/run/relive/inprocess``
with the
  recorder for Python processes, ``/run/relive/rings`` with their rings.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import relive
from relive.checkpoint.kernel_cache import place_kerndat
from relive.kernel.mounts import Mount, MountFlag, bind, make_slave, mount, mount_overlay
from relive.model.capsule import INPROCESS_DIRECTORY, RUN_DIRECTORY
from relive.sandbox.inode_numbers import InodeNumbers, number_files

__all__ = [
    "INPROCESS_DIRECTORY",
    "INPROCESS_FILES",
    "IO_DIRECTORY",
    "RINGS_DIRECTORY",
    "RUN_DIRECTORY",
    "CoveredPoint",
    "RootBuilder",
    "layer_directories",
    "layer_points",
    "note_point",
    "plan_points",
    "share_host",
]

IO_DIRECTORY = RUN_DIRECTORY / "io"
RINGS_DIRECTORY = RUN_DIRECTORY / "rings"
INPROCESS_FILES = Path(relive.__file__).parent.parent / "relive_inprocess"

_COVERED_KINDS = frozenset(
    {
        "ext2",
        "ext3",
        "ext4",
        "xfs",
        "btrfs",
        "tmpfs",
        "overlay",
        "f2fs",
        "zfs",
        "bcachefs",
        "erofs",
        "squashfs",
    }
)
_KEPT_APART = ("/proc", "/sys", "/dev", "/run")
_DEVICES = {
    "null": os.makedev(1, 3),
    "zero": os.makedev(1, 5),
    "full": os.makedev(1, 7),
    "random": os.makedev(1, 8),
    "urandom": os.makedev(1, 9),
    "tty": os.makedev(5, 0),
}
_DEVICE_LINKS = {
    "ptmx": "pts/ptmx",
    "fd": "/proc/self/fd",
    "stdin": "/proc/self/fd/0",
    "stdout": "/proc/self/fd/1",
    "stderr": "/proc/self/fd/2",
}
_TMPFS_ROOM = "size=50%"
_POINT = "point"  # a link that says the mount point of a slot


@dataclass(frozen=True, slots=True)
class CoveredPoint:
    """One mount of the host that gets an overlay; ``slot`` names its layer directories."""

    point: str
    slot: str


def plan_points(mounts: Iterable[Mount], home: Path) -> list[CoveredPoint]:
    """Which mount points get an overlay, parents before children; the root is always the first.

    Left out: kernel file systems, what lies below /proc, /sys, /dev, /run or Relive's home, mounts of single files, and
    mounts that a later mount hides.
    """
    last: dict[str, Mount] = {}
    for entry in mounts:
        below = entry.point.rstrip("/") + "/"
        for point in [known for known in last if known.startswith(below) and known != entry.point]:
            del last[point]  # a later mount higher up hides it
        last[entry.point] = entry
    points = ["/"]
    apart = tuple(f"{one}/" for one in (*_KEPT_APART, home))
    for point, entry in sorted(last.items()):
        if point == "/" or entry.kind not in _COVERED_KINDS or f"{point}/".startswith(apart):
            continue
        if os.path.isdir(point):  # noqa: PTH112 - texts: a branch waits for this
            points.append(point)
    return [CoveredPoint(point, f"{number:02}") for number, point in enumerate(points)]


def layer_directories(layers: Path, slot: str) -> tuple[Path, Path]:
    """The (upper, work) directories of one overlay."""
    return layers / slot / "upper", layers / slot / "work"


def note_point(layers: Path, point: CoveredPoint) -> None:
    """Write down whose layers those of a slot are (``layer_points``)."""
    with contextlib.suppress(FileExistsError):
        (layers / point.slot / _POINT).symlink_to(point.point)


def layer_points(layers: Path) -> dict[str, Path]:
    """The upper directories that have been mounted, by mount point."""
    notes = sorted(layers.glob(f"*/{_POINT}"))
    return {os.readlink(note): layer_directories(layers, note.parent.name)[0] for note in notes}


def share_host(*, home: Path, tools: Path, io: Path, rings: Path) -> None:
    """Make the caller's mount namespace, a copy of the host's, that of a capsule whose files are the host's.

    What differs from the host: ``/proc`` of the caller's PID namespace, POSIX queues of its own (as its IPC namespace demands),
    ``RELIVE_HOME`` empty but for the tools, and what stands in ``/run/relive``. Mounts that the host makes later appear.

    Raises:
        OSError: as mount(2).
    """
    make_slave()
    _make_run_directories()
    builder = RootBuilder(None, home=home, tools=tools)
    builder.share_standard_streams(io)
    builder.share_recorder(rings)
    builder.own_queues()
    builder.hide_home()
    builder.mount_proc()


def _make_run_directories() -> None:
    for directory in (IO_DIRECTORY, RINGS_DIRECTORY, INPROCESS_DIRECTORY):
        directory.mkdir(parents=True, exist_ok=True)


class RootBuilder:
    """Mounts a root below ``directory`` in the caller's mount namespace, which must be private already.

    Every method may raise OSError; the caller ends its namespace then, which undoes everything.

    Args:
        directory: None: nothing is covered, the root is what the caller sees.
        devices: device nodes that lie on the host's disks can be opened. Never in a branch: a disk's node would be a
            way out of it.
        volatile: what is written is thrown away at the end; where the kernel knows of that, nothing waits for the disk.
    """

    def __init__(
        self,
        directory: Path | None,
        *,
        home: Path,
        tools: Path,
        devices: bool = True,
        volatile: bool = False,
    ) -> None:
        self.root = directory / "root" if directory is not None else Path("/")
        self._root_text = str(self.root)
        self._inside: dict[str, Path] = {}
        self._layers = directory / "layers" if directory is not None else Path()
        self._under = directory / "under" if directory is not None else Path()
        self._home = Path(os.path.realpath(home))
        self._tools = Path(os.path.realpath(tools))
        self._is_covered = directory is not None
        self._volatile = volatile
        self._flags = MountFlag.NONE if devices else MountFlag.NO_DEVICES
        self.root.mkdir(exist_ok=True)

    def inside(self, path: str | Path) -> Path:
        """Where a path of the new root is now.

        Raises:
            OSError: ELOOP where a symbolic link is on the way, ENOTDIR where there is no path: it would be followed on the
                host. What lies over the host's files may come from elsewhere.
        """
        parts = str(path).strip("/").split("/")
        if not self._is_covered or parts == [""]:
            return self.root / str(path).lstrip("/")
        here = self._root_text  # a text: this is asked hundreds of times for a branch
        for part in parts:
            if part in ("", ".", ".."):
                raise OSError(errno.ENOTDIR, "a commit names a place that is none", str(path))
            here = f"{here}/{part}"
            if os.path.islink(here):  # noqa: PTH114
                raise OSError(
                    errno.ELOOP, "a commit has a symbolic link where a branch has a directory", str(path)
                )
        if here not in self._inside:  # making a Path takes longer than the look at all its links
            self._inside[here] = Path(here)
        return self._inside[here]

    def upper(self, point: CoveredPoint) -> Path:
        """The directory of the upper layer of a point's overlay."""
        return layer_directories(self._layers, point.slot)[0]

    def cover(
        self, point: CoveredPoint, committed: Sequence[Path] = (), numbers: InodeNumbers | None = None
    ) -> set[str]:
        """Mount the overlay of one point; returns the paths of files that have the numbers which are wanted for them.

        Args:
            committed: directories that lie over the host's, the uppermost first.
            numbers: for files in them.

        A point that cannot have one (a mount that stacks too deep already, as the inside of a nested container) is
        shown read-only; one that has vanished meanwhile is left out.
        """
        if not Path(point.point).is_dir() or not self.inside(point.point).is_dir():
            return set()
        try:
            return self._cover(point, committed, numbers)
        except FileNotFoundError:
            if point.point == "/" or Path(point.point).is_dir():
                raise
        return set()

    def _cover(
        self, point: CoveredPoint, committed: Sequence[Path], numbers: InodeNumbers | None
    ) -> set[str]:
        upper, work = layer_directories(self._layers, point.slot)
        for place in (self._layers, upper.parent, upper, work):
            place.mkdir(exist_ok=True)
        note_point(self._layers, point)
        _copy_likeness(point.point, upper)
        lower = [Path(point.point)]
        if committed:
            _link_to(committed, upper.parent / "between")
            overlaps = any(one.is_relative_to(point.point) for one in committed)
            lower = [*committed, self._see_through(point) if overlaps else Path(point.point)]
        numbered: set[str] = set()
        if numbers is not None and committed:
            lower.append(numbers.layer)
            first = self._under / point.slot / "first"
            numbered = number_files(point.point, numbers, first=first, lower=lower, upper=upper, work=work)
        try:
            self._mount(point, lower, upper, work)
        except OSError as error:
            if error.errno != errno.EINVAL or point.point == "/" or committed:
                raise
            bind(Path(point.point), self.inside(point.point), read_only=True)
        return numbered

    def _mount(self, point: CoveredPoint, lower: list[Path], upper: Path, work: Path) -> None:
        target = self.inside(point.point)
        if self._volatile:
            with contextlib.suppress(OSError):  # an older kernel
                mount_overlay(target, lower=lower, upper=upper, work=work, flags=self._flags, volatile=True)
                return
        mount_overlay(target, lower=lower, upper=upper, work=work, flags=self._flags)

    def _see_through(self, point: CoveredPoint) -> Path:
        # Overlayfs refuses a lower directory that lies below another one of the same file system, as the files of a
        # commit lie below "/". Through a read-only overlay the host's directory counts as another file system.
        under = self._under / point.slot
        (under / "empty").mkdir(parents=True, exist_ok=True)
        (under / "host").mkdir(exist_ok=True)
        mount("tmpfs", under / "empty", "tmpfs")
        _copy_likeness(point.point, under / "empty")
        mount_overlay(under / "host", lower=[under / "empty", Path(point.point)], upper=None, work=None)
        return under / "host"

    def share_host_devices(self) -> None:
        """The host's /dev and /sys, but shared memory and queues of its own (capsules)."""
        bind(Path("/sys"), self.inside("/sys"), recursive=True)
        bind(Path("/dev"), self.inside("/dev"), recursive=True)
        self._private_memory()

    def own_devices(self) -> None:
        """A /dev with only the harmless devices, and /sys read-only (branches)."""
        bind(Path("/sys"), self.inside("/sys"), read_only=True)
        dev = self.inside("/dev")
        mount("tmpfs", dev, "tmpfs", MountFlag.NO_SUID, "mode=755,size=1m")
        for name, number in _DEVICES.items():
            node = f"{dev}/{name}"
            os.mknod(node, 0o666 | stat.S_IFCHR, number)
            os.chmod(node, 0o666)  # noqa: PTH101
        for name in ("pts", "shm", "mqueue"):
            os.mkdir(f"{dev}/{name}")  # noqa: PTH102
        mount(
            "devpts",
            dev / "pts",
            "devpts",
            MountFlag.NO_SUID | MountFlag.NO_EXEC,
            "newinstance,ptmxmode=0666,mode=620",
        )
        for name, target in _DEVICE_LINKS.items():
            os.symlink(target, f"{dev}/{name}")  # noqa: PTH211
        self._private_memory()

    def _private_memory(self) -> None:
        flags = MountFlag.NO_SUID | MountFlag.NO_DEVICES
        mount("tmpfs", self.inside("/dev/shm"), "tmpfs", flags, "mode=1777")
        self.own_queues()

    def own_queues(self) -> None:
        """The POSIX queues of the caller's IPC namespace."""
        if self.inside("/dev/mqueue").is_dir():
            flags = MountFlag.NO_SUID | MountFlag.NO_DEVICES | MountFlag.NO_EXEC
            mount("mqueue", self.inside("/dev/mqueue"), "mqueue", flags)

    def share_run(self) -> None:
        """The host's own /run (capsules)."""
        _make_run_directories()
        bind(Path("/run"), self.inside("/run"), recursive=True)

    def own_run(self) -> None:
        """A private /run with the host's directories and none of its files (branches)."""
        run = self.inside("/run")
        mount("tmpfs", run, "tmpfs", MountFlag.NO_SUID | MountFlag.NO_DEVICES, f"mode=755,{_TMPFS_ROOM}")
        with os.scandir("/run") as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    with contextlib.suppress(FileNotFoundError):
                        here = f"{run}/{entry.name}"  # texts: a branch waits for this
                        os.mkdir(here)  # noqa: PTH102
                        _copy_likeness(entry.path, here)
        for directory in (IO_DIRECTORY, RINGS_DIRECTORY, INPROCESS_DIRECTORY):
            self.inside(directory).mkdir(parents=True, exist_ok=True)
        place_kerndat(self._tools, self.root)

    def share_standard_streams(self, io: Path) -> None:
        """Make the directory of stdout and stderr appear at ``IO_DIRECTORY``."""
        bind(io, self.inside(IO_DIRECTORY))

    def share_recorder(self, rings: Path) -> None:
        """Make the recorder for Python services, and the directory of their rings, appear where they expect them."""
        bind(INPROCESS_FILES, self.inside(INPROCESS_DIRECTORY), read_only=True)
        bind(rings, self.inside(RINGS_DIRECTORY))

    def hide_home(self) -> None:
        """Hide everything of Relive but its tools, which CRIU needs inside."""
        # Held open: they may lie in the home, which is then hidden here, too.
        held = os.open(self._tools, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            if self.inside(self._home).is_dir():
                mount(
                    "tmpfs",
                    self.inside(self._home),
                    "tmpfs",
                    MountFlag.NO_SUID | MountFlag.NO_DEVICES,
                    "mode=755,size=1m",
                )
            tools = self.inside(self._tools)
            # In a branch always: what lies there may be the commit's, and these run with root's rights.
            if self._is_covered or not tools.is_dir() or not (tools / "criu").exists():
                tools.mkdir(parents=True, exist_ok=True)
                bind(Path(f"/proc/self/fd/{held}"), tools, read_only=True)
        finally:
            os.close(held)

    def mount_proc(self) -> None:
        """/proc of the caller's PID namespace; must be called by a process that is in it."""
        mount(
            "proc", self.inside("/proc"), "proc", MountFlag.NO_SUID | MountFlag.NO_DEVICES | MountFlag.NO_EXEC
        )


def _link_to(layers: Sequence[Path], between: Path) -> None:
    """Tell process 1 of the service's capsule, from which Relive's home is hidden, of the layers over the host (``branches.h``)."""
    between.mkdir(exist_ok=True)
    for number, layer in enumerate(layers):
        link = between / str(number)
        if not link.is_symlink():
            link.symlink_to(os.path.relpath(os.path.realpath(layer), os.path.realpath(between)))


def _copy_likeness(model: str, copy: str | Path) -> None:
    """Give a layer's top directory the owner and mode of what it covers: the overlay shows the top layer's."""
    facts = os.stat(model)
    os.chown(copy, facts.st_uid, facts.st_gid)
    shutil.copystat(model, copy)
