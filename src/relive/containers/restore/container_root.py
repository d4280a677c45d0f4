"""The files of a container's branch, and how CRIU is told of them.

CRIU makes the container's own mount, PID, IPC and UTS namespaces, within those of the branch, out of its images. Its process 1 so
has number 1 again and sees nobody but its own. Until its processes run, the branch's own mount namespace shows the host, since CRIU
needs programs of it; then nothing but Relive's tools.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath

from relive.checkpoint import criu_rpc_pb2 as rpc
from relive.containers.restore.binds import Binds, MountContents
from relive.containers.restore.confined_paths import prepared
from relive.containers.restore.images import lay_out_large_images, limit_container
from relive.containers.restore.specification import ContainerSpecification
from relive.errors import RestoreFailed
from relive.images import criu_images_pb2 as pb
from relive.images.mounts import read_mount_images
from relive.kernel import libc
from relive.kernel.mounts import MountFlag, bind, mount, mount_overlay, pivot_root
from relive.kernel.namespaces import Namespace
from relive.model.branch import MissingFile
from relive.model.commit import CommitId
from relive.sandbox.branch_plan import BranchPlan
from relive.sandbox.init_process import FirstProcess
from relive.sandbox.inode_numbers import InodeNumbers, number_files
from relive.sandbox.proc_lockdown import close_proc
from relive.sandbox.rootfs import layer_directories
from relive.store import Store

__all__ = ["ContainerRoot"]

_SLOT = "00"


@dataclass(slots=True)
class ContainerRoot:
    """See ``branch_root.BranchRoot``.

    Attributes:
        directory: the branch's.
        layers: of the root file system, topmost first: what the container had changed, then its image.
        networks: what CRIU calls the network namespaces that it gets.
        outside_names: unix datagram sockets that somebody has to listen at.
        missing_files: of volumes what the commit does not hold.
        inode_numbers: those that files of the root file system shall have, by path.
        numbered: the paths that have them.
    """

    directory: Path
    tools: Path
    specification: ContainerSpecification
    layers: Sequence[Path]
    contents: MountContents
    store: Store
    networks: Sequence[str] = ()
    outside_names: Sequence[bytes] = ()
    missing_files: list[MissingFile] = field(default_factory=list)
    inode_numbers: Mapping[str, int] = field(default_factory=dict)
    numbered: set[str] = field(default_factory=set)
    _sources: dict[str, Path] = field(default_factory=dict)

    @property
    def is_container(self) -> bool:
        return True

    @property
    def io(self) -> Path:
        return self.directory / "io"

    @property
    def devices(self) -> Path:
        """Those of the branch's own mount namespace, which shows the host: a container's terminal is no file of its own."""
        return Path("/dev")

    @property
    def _root(self) -> Path:
        return self.directory / "root"

    @property
    def _shell(self) -> Path:
        return self.directory / "shell"

    def mount(self, first: FirstProcess) -> None:
        upper, work = layer_directories(self.directory / "layers", _SLOT)
        for path in (self._root, upper, work, self._shell):
            path.mkdir(parents=True, exist_ok=True)
        facts = self.layers[1].stat()  # the image's: what had changed in it does not tell of its top
        os.chown(upper, facts.st_uid, facts.st_gid)
        upper.chmod(stat.S_IMODE(facts.st_mode))
        lower = list(self.layers)
        numbers = InodeNumbers.mounted(self.directory / "numbers", self.inode_numbers)
        if numbers is not None:
            lower.append(numbers.layer)
            first_place = self.directory / "first"
            self.numbered |= number_files(
                "/", numbers, first=first_place, lower=lower, upper=upper, work=work
            )
        mount_overlay(self._root, lower=lower, upper=upper, work=work, flags=MountFlag.NO_DEVICES)
        # What is left of the branch's own mount namespace when the container runs.
        mount("tmpfs", self._shell, "tmpfs", MountFlag.NO_SUID, "mode=755,size=64k")
        for name in ("proc", "dev"):
            (self._shell / name).mkdir()
        os.mknod(self._shell / "dev" / "null", 0o666 | stat.S_IFCHR, os.makedev(1, 3))
        tools = self._shell / str(self.tools).lstrip("/")
        tools.mkdir(parents=True)
        bind(self.tools, tools, read_only=True)
        first.mount_proc(self._shell / "proc")
        # CRIU looks up there the numbers that processes have in its PID namespace.
        first.mount_proc(Path("/proc"))

    def fit(self, commit: CommitId, images: Path, plan: BranchPlan) -> BranchPlan:
        """Its own networks, the addresses that it had, and its output to where `relive logs` looks."""
        lay_out_large_images(self.store, self.specification, images)
        self.networks = limit_container(commit, images)
        self.outside_names = plan.outside_names
        streams = dict(zip(self.specification.streams[1:3], ("stdout", "stderr"), strict=False))
        addresses = sorted({*plan.addresses, *self.specification.addresses})
        return replace(plan, addresses=addresses, streams=streams)

    @property
    def held(self) -> list[int]:
        return []

    def enter(self) -> None:
        """Nothing yet: CRIU needs the host's programs."""

    def listening_place(self, name: bytes) -> Path:
        path = os.fsdecode(name)
        if path in self.specification.binds:
            return self.directory / "binds" / f"listening-{self._listened(path)}"
        return _place(self._root, path)

    def _listened(self, path: str) -> int:
        return sorted(os.fsdecode(one) for one in self.outside_names).index(path)

    def prepare(self, images: Path) -> None:
        """Make what stands for the outside, and the places at which CRIU mounts."""
        namespaces = read_mount_images(images)
        listening = {
            path: self.listening_place(name)
            for name in self.outside_names
            if (path := os.fsdecode(name)) in self.specification.binds
        }
        binds = Binds(
            self.directory / "binds",
            self._root,
            self.specification,
            self.contents,
            self.directory / "rings",
            listening,
        )
        everything = [entry for mounts in namespaces.values() for entry in mounts]
        self._sources = binds.sources(everything)
        for mounts in namespaces.values():
            self._make_places(mounts)

    def _make_places(self, mounts: Sequence[pb.MntEntry]) -> None:
        """CRIU wants each mount point to be there; those in its own file systems it brings along."""
        by_id = {entry.mnt_id: entry for entry in mounts}
        for entry in mounts:
            parent = by_id.get(entry.parent_mnt_id)
            if parent is None:
                continue  # the root
            top = self._root if parent.mountpoint == "/" else self._sources.get(parent.ext_key)
            if top is None or not top.is_dir():
                continue
            inside = PurePosixPath(entry.mountpoint).relative_to(parent.mountpoint)
            if not inside.parts:
                continue  # a mount over another one
            place = _place(top, str(inside))
            source = self._sources.get(entry.ext_key)
            is_file = source is not None and not source.is_dir()
            if not os.path.lexists(place):
                place.touch() if is_file else place.mkdir()

    def set_criu_options(self, options: rpc.Options, network: int) -> None:
        options.root = str(self._root)
        # A container's terminal is its own; only the master side is its engine's, and CRIU hands that out.
        options.shell_job, options.orphan_pts_master = False, True
        for key, source in self._sources.items():
            options.external.append(f"mnt[{key}]:{source}")
        options.inherit_fd.extend(rpc.InheritFd(key=key, fd=network) for key in self.networks)

    def files_opened(self) -> None:
        """Nothing: nobody but CRIU makes its upper layer."""

    def release(self) -> None:
        """Nothing is kept open."""

    def close(self, root: int) -> None:
        pivot_root(self._shell)
        # Those of a container that sees the processes of its host can come here, through /proc/1/root.
        close_proc()
        own = os.open("/proc/1/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
        try:
            theirs = os.open(f"/proc/{root}/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
            try:
                libc.call("setns", theirs, int(Namespace.MOUNT))
                close_proc()
            finally:
                os.close(theirs)
                libc.call("setns", own, int(Namespace.MOUNT))
        finally:
            os.close(own)


def _place(top: Path, path: str) -> Path:
    place = prepared(top, path)
    if place is None:
        raise _in_the_way(path)
    return place


def _in_the_way(path: str) -> RestoreFailed:
    return RestoreFailed(
        f"nothing can be mounted at the container's {path}",
        cause="a file or a symbolic link is in the way in its root file system",
        remedy="do not trust this commit: no engine would have mounted there",
    )
