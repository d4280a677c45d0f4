"""What stands for the outside in a container's mount namespace: for each mount that its engine had bound, a source in the branch.

Nothing of the host can be changed through one of them, and no unix socket of the host's be reached. CRIU calls each by a key, which
is its mount point but for masked files of runc (``/dev/null``).
"""

from __future__ import annotations

import os
import re
import shutil
import stat
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from relive.containers.restore.confined_paths import below
from relive.containers.restore.specification import BindMount, ContainerSpecification
from relive.errors import RestoreFailed
from relive.images import criu_images_pb2 as pb
from relive.images.mounts import HARMLESS_DEVICES
from relive.kernel.mounts import MountFlag, mount, mount_overlay
from relive.sandbox.branch_root import copy_tree
from relive.sandbox.rootfs import INPROCESS_DIRECTORY, INPROCESS_FILES, RINGS_DIRECTORY

__all__ = ["SHARED_MEMORY", "Binds", "MountContents"]

SHARED_MEMORY = "/dev/shm"

_CGROUP = 12  # CRIU's fstype
_DEV_NULL = "/dev/null"
_ROOM = "size=50%"
_SIZE = re.compile(r"(?:^|,)size=([0-9]{1,15}[kmg]?)(?:,|$)")


@dataclass(frozen=True, slots=True)
class MountContents:
    """What came with the commit, by mount point.

    Attributes:
        trees: volumes, by where the container's configuration has them, and /dev/shm, with all they held.
        over: files of other volumes, to lie over what the host has there.
    """

    trees: Mapping[str, Path]
    over: Mapping[str, Path]


class Binds:
    """Makes sources below ``directory``, which is new, in the caller's mount namespace, which must be its own.

    Args:
        root: the container's root file system.
        listening: what is bound for a unix datagram socket that somebody outside had listened at, by its path.
    """

    def __init__(
        self,
        directory: Path,
        root: Path,
        specification: ContainerSpecification,
        contents: MountContents,
        rings: Path,
        listening: dict[str, Path],
    ) -> None:
        self._directory = directory
        self._root = root
        self._specification = specification
        self._contents = contents
        self._rings = rings
        self._listening = listening
        self._count = 0
        directory.mkdir()
        # Device nodes that are the branch's own: who is root in it may change their mode.
        self._devices = directory / "devices"
        self._devices.mkdir()
        mount("tmpfs", self._devices, "tmpfs", MountFlag.NO_SUID, "mode=755,size=64k")
        for name, numbers in HARMLESS_DEVICES.items():
            os.mknod(self._devices / name, 0o666 | stat.S_IFCHR, os.makedev(*numbers))
            (self._devices / name).chmod(0o666)
        self._nothing = directory / "nothing"
        self._nothing.mkdir(mode=0o555)

    def sources(self, mounts: Iterable[pb.MntEntry]) -> dict[str, Path]:
        """What to put where, by the key of the mount.

        Raises:
            RestoreFailed: for one of them there is nothing that could stand for it.
            OSError: the kernel refuses a mount.
        """
        found: dict[str, Path] = {}
        for entry in mounts:
            if entry.HasField("ext_key") and entry.ext_key not in found:
                found[entry.ext_key] = self._source(entry)
        return found

    def _source(self, entry: pb.MntEntry) -> Path:
        if (
            entry.ext_key == _DEV_NULL
            or entry.mountpoint in self._specification.masked - self._specification.binds.keys()
        ):
            return self._devices / "null"
        if entry.fstype == _CGROUP:
            return self._nothing
        own: dict[str, Callable[[], Path]] = {
            SHARED_MEMORY: lambda: self._shared_memory(entry.options),
            str(RINGS_DIRECTORY): lambda: self._rings,
            str(INPROCESS_DIRECTORY): lambda: INPROCESS_FILES,
        }
        if entry.mountpoint in own:
            return own[entry.mountpoint]()
        if entry.mountpoint in self._listening:
            return self._listening[entry.mountpoint]
        device = entry.mountpoint.removeprefix("/dev/")
        if device in HARMLESS_DEVICES:
            return self._devices / device
        # Where its destination leads through a symbolic link, the key may be that; else the source tells.
        binds = self._specification.binds
        by_source = (one for one in binds.values() if one.source == entry.root)
        bind = binds.get(entry.mountpoint) or binds.get(entry.ext_key) or next(by_source, None)
        if bind is None:
            raise _unknown(entry)
        return self._bound(entry, bind)

    def _shared_memory(self, options: str) -> Path:
        target = self._fresh()
        target.mkdir()
        found = _SIZE.search(options)
        room = f"size={found[1]}" if found else _ROOM
        mount("tmpfs", target, "tmpfs", MountFlag.NO_SUID | MountFlag.NO_DEVICES, f"mode=1777,{room}")
        held = self._contents.trees.get(SHARED_MEMORY)
        if held is not None:
            copy_tree(held, target)
            target.chmod(0o1777)
        return target

    def _bound(self, entry: pb.MntEntry, bind: BindMount) -> Path:
        held, over = (
            found.get(entry.mountpoint) or found.get(bind.destination)
            for found in (self._contents.trees, self._contents.over)
        )
        if held is not None:
            return self._overlay([held])
        source = Path(bind.source)
        try:
            kind = stat.S_IFMT(source.stat().st_mode)
        except OSError:
            return self._made(bind)
        if kind == stat.S_IFDIR:
            return self._overlay([source] if over is None else [over, source])
        target = self._fresh()
        if kind == stat.S_IFREG:
            shutil.copy2(source, target)
            facts = source.stat()
            os.chown(target, facts.st_uid, facts.st_gid)
        else:
            target.touch()  # a socket or a device of the host: its place is there, it is not
        return target

    def _made(self, bind: BindMount) -> Path:
        """For a file that engines make for each container, and remove with it."""
        contents = {
            "/etc/hosts": self._hosts(),
            "/etc/hostname": f"{self._specification.hostname}\n",
            "/etc/resolv.conf": "",
            "/etc/passwd": self._users("/etc/passwd", "{0}:*:{0}:{1}:container user:/:/bin/sh\n"),
            "/etc/group": self._users("/etc/group", "{1}:x:{1}:\n"),
            "/run/.containerenv": "",
            "/dev/termination-log": "",
        }
        content = contents.get(bind.destination)
        if content is None:
            raise RestoreFailed(
                f"the container's {bind.destination} cannot be brought back",
                cause=f"it was {bind.source} of the host, which is not here, and the commit does not hold it",
                remedy=f"put {bind.source} there again, or restore where it is",
            )
        target = self._fresh()
        target.write_text(content)
        target.chmod(0o644)
        return target

    def _users(self, path: str, line: str) -> str:
        """The image's list, and behind it the container's own user, as podman adds it."""
        place = below(self._root, path)
        is_file = place is not None and place.is_file()
        text = (
            place.read_text(errors="replace")
            if place is not None and is_file
            else "root:x:0:0:root:/:/bin/sh\n"
        )
        return text + (line.format(*self._specification.user) if any(self._specification.user) else "")

    def _hosts(self) -> str:
        own = [f"{address}\t{self._specification.hostname}" for address in self._specification.addresses]
        return "\n".join(("127.0.0.1\tlocalhost", "::1\tlocalhost", *own)) + "\n"

    def _overlay(self, lower: list[Path]) -> Path:
        """Directories that are seen as one, topmost first, with a layer over them for what the branch writes."""
        target = self._fresh()
        upper, work = (target.with_name(f"{target.name}-{part}") for part in ("upper", "work"))
        for path in (target, upper, work):
            path.mkdir()
        facts = lower[-1].stat()
        os.chown(upper, facts.st_uid, facts.st_gid)
        upper.chmod(stat.S_IMODE(facts.st_mode))
        try:
            mount_overlay(target, lower=lower, upper=upper, work=work, flags=MountFlag.NO_DEVICES)
        except OSError as error:
            # To show it as it is would not do: even where nothing can be written, the host's unix sockets could be reached.
            raise RestoreFailed(
                f"the directory {lower[-1]} cannot be laid below a branch's",
                cause=f"overlayfs refuses it: {error.strerror}",
                remedy="keep the container's volumes on a disk of this host, and not in an overlay",
            ) from error
        return target

    def _fresh(self) -> Path:
        self._count += 1
        return self._directory / f"{self._count:03}"


def _unknown(entry: pb.MntEntry) -> RestoreFailed:
    return RestoreFailed(
        f"the container's {entry.mountpoint} cannot be brought back",
        cause=f"it was a mount from outside ({entry.ext_key!r} to CRIU) that the container's configuration does not name",
        remedy="restore it with the engine that it was made with",
    )
