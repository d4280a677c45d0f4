"""A commit as a value: what a manifest says. Its id is the BLAKE3 of the manifest's canonical JSON.

Times: ``*_ns`` are nanoseconds; wall clock since the epoch, monotonic as CLOCK_MONOTONIC of the host.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Self

from pydantic import (
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    StringConstraints,
    model_serializer,
    model_validator,
)

from relive.model.commit_id import CommitId
from relive.model.text import NativeText
from relive.model.value import Value

__all__ = [
    "CONTAINER_VERSION",
    "MANIFEST_VERSION",
    "CommitId",
    "Connection",
    "ContainerFacts",
    "ContainerMount",
    "Cursor",
    "EntryKind",
    "FileEntry",
    "HostFacts",
    "ImageFile",
    "Layer",
    "LayerKind",
    "Listing",
    "Manifest",
    "OpenRequest",
    "Outlet",
    "ProcessFacts",
    "TargetFacts",
    "TargetKind",
    "Trigger",
]

CONTAINER_VERSION = 3  # of older commits of containers; older ones of all else have 2, or 1
MANIFEST_VERSION = 4  # since then manifests name a listing instead of holding every file


# Checked when a manifest is read, since an object's name becomes a path: a manifest may come from elsewhere.
ObjectName = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]


class StoredValue(Value):
    """Base of all stored values: unknown fields are refused rather than lost."""

    model_config = ConfigDict(extra="forbid")


class TargetKind(StrEnum):
    """What was committed."""

    CAPSULE = "capsule"
    PROCESS = "pid"
    CONTAINER = "container"


class Trigger(StrEnum):
    """Why a commit was taken."""

    MANUAL = "manual"
    START = "start"
    TIMER = "timer"
    DEPLOY = "deploy"  # another revision of the code was seen
    REQUEST = "request"
    INCIDENT = "incident"
    IMPORT = "import"  # taken elsewhere, by podman or another engine of containers
    BRANCH = "branch"  # of a branch: no moment of the service, which never was as it is there


class ProcessFacts(StoredValue):
    """One process of the tree; pids as inside the target's own PID namespace."""

    pid: int
    parent: int
    command: NativeText
    threads: int
    uid: int


class TargetFacts(StoredValue):
    """The target.

    Attributes:
        life: names one start of a capsule: a restarted service is a new life. A container's id; None for a plain pid.
    """

    kind: TargetKind
    name: str
    life: str | None
    root: int = Field(description="pid of the tree's root inside its PID namespace")
    command: list[NativeText]
    processes: list[ProcessFacts]


class HostFacts(StoredValue):
    """Where it was taken; a restore elsewhere has to fit these.

    Attributes:
        machine: as ``uname -m`` says it; None where it was not recorded.
        cpu: the CPU's instruction sets in the order of their names, as /proc/cpuinfo calls them; None as above.
    """

    name: str
    kernel: str
    criu: str
    machine: str | None = None
    cpu: list[str] | None = None

    @model_serializer(mode="wrap")
    def _without_what_was_not_recorded(self, inner: SerializerFunctionWrapHandler) -> dict[str, Any]:
        # A commit from before these fields keeps its bytes, and with them its id.
        return {name: value for name, value in inner(self).items() if value is not None}


class ContainerMount(StoredValue):
    """A directory or file of the host, or a volume, in a container's file system.

    Attributes:
        volume: the volume's name; empty for a bind mount.
        source: where it lay on the host.
    """

    volume: NativeText
    source: NativeText
    destination: NativeText
    writable: bool


class ContainerFacts(StoredValue):
    """What its engine said of a container.

    Attributes:
        engine: "podman", "docker", "cri-o", "containerd" or "unknown".
        id: as the engine names it.
        image, runtime: names; empty where the archive does not tell.
        created: as the engine wrote it, mostly RFC 3339; empty as above.
        image_id, image_digest: of the image's configuration and of its manifest; only of containers that Relive itself
            committed, as are the following. Empty, and then not written, where not known.
        network: podman's name of the mode: "bridge", "none", "host" and others.
        ports: published ones, as ``HOST:HOSTPORT:PORT/PROTOCOL``.
        mounts: those that its files alone do not bring back; a layer of their destination where they were committed.
    """

    engine: str
    id: str
    image: str
    runtime: str
    created: str
    image_id: str = ""
    image_digest: str = ""
    network: str = ""
    ports: list[str] = []
    mounts: list[ContainerMount] = []

    @model_serializer(mode="wrap")
    def _without_what_is_not_known(self, inner: SerializerFunctionWrapHandler) -> dict[str, Any]:
        # A commit from before these fields keeps its bytes, and with them its id.
        later = ("image_id", "image_digest", "network", "ports", "mounts")
        return {name: value for name, value in inner(self).items() if name not in later or value}


class ImageFile(StoredValue):
    """One of CRIU's image files. ``object`` is the BLAKE3 of its bytes; where they lie, its commit's placement says.

    In version 1 it is the name of an object that holds them.
    """

    name: str
    size: int
    object: ObjectName


class EntryKind(StrEnum):
    """What stands at a path of a layer."""

    FILE = "file"
    DIRECTORY = "directory"
    LINK = "link"
    WHITEOUT = "whiteout"
    PIPE = "pipe"
    SOCKET = "socket"


class FileEntry(StoredValue):
    """One path of a layer, relative to the layer's mount point, without a leading slash.

    Attributes:
        mode: permission bits (07777).
        object: BLAKE3 of the content, for files.
        link: what a symbolic link says.
        opaque: a directory that hides what lies below it in lower layers.
        attributes: extended attributes other than overlayfs's own; values in hexadecimal.
    """

    path: NativeText
    kind: EntryKind
    mode: int = 0
    uid: int = 0
    gid: int = 0
    mtime_ns: int = 0
    size: int = 0
    object: ObjectName | None = None
    link: NativeText | None = None
    opaque: bool = False
    attributes: dict[NativeText, str] = {}


class LayerKind(StrEnum):
    """How a layer comes back: over the host's directory, or as a file system of its own."""

    OVERLAY = "overlay"
    TMPFS = "tmpfs"
    ARCHIVE = "archive"  # no files of the target: members of the checkpoint archive it was imported from
    VOLUME = "volume"  # a container's volume or writable directory of the host, with all it holds


class Layer(StoredValue):
    """Files that belong to the commit, below one mount point."""

    point: NativeText
    kind: LayerKind
    entries: list[FileEntry]
    left_out: list[NativeText] = Field(
        default=[], description="paths not copied, with the reason after a tab"
    )


class Listing(StoredValue):
    """What a manifest says of its layers, which lie in the commit's index.

    Attributes:
        object: BLAKE3 of the bytes that tell the layers; size: how many.
        files: bytes of all files of the layers together.
    """

    object: ObjectName
    size: int
    files: int


class OpenRequest(StoredValue):
    """A request that was being served at the moment of the commit."""

    request: int
    local_port: int = Field(description="port of the proxy's end of the connection that carries it")


class Connection(StoredValue):
    """An established TCP connection of the target, as (address, port) of both ends."""

    local: tuple[str, int]
    peer: tuple[str, int]
    inward: bool = Field(description="its local port is one that the target listens on")


class Outlet(StoredValue):
    """An end of a pipe or terminal whose other end is outside the tree; a branch gets a file in its place.

    ``key`` is what CRIU calls it: ``pipe:[INODE]`` or ``tty[RDEV:DEV]`` in hexadecimal.
    """

    key: str
    writable: bool


class Cursor(StoredValue):
    """Where in the recording the commit was taken.

    Attributes:
        sequence: request bytes of events up to and with this one had reached the service, later ones had not.
        settled: answer bytes of events up to and with this one had left the service, later ones had not; it is the later
            of the two, since answers that were under way arrive while requests are held back.
    """

    sequence: int
    settled: int = 0
    open_requests: list[OpenRequest] = []


class Manifest(StoredValue):
    """A commit: all that is needed to bring the target back, by reference to objects of the store.

    Attributes:
        capture: random name given before the id is known, so that a recording can point here.
        pause_us: microseconds during which the target stood still, as CRIU measured it.
        parents: ids of the commits before it of the same life; empty for the first.
        layers: from version 4 on the store keeps them beside the manifest, under the hash that ``listing`` has.
        listing: None, and not written at all, before version 4 and where there are no layers.
        container: of a container; None, and not written at all, for all else.
    """

    version: int = MANIFEST_VERSION
    capture: str
    target: TargetFacts
    host: HostFacts
    trigger: Trigger
    taken_wall_ns: int
    taken_monotonic_ns: int
    pause_us: int
    parents: list[CommitId]
    cursor: Cursor | None
    images: list[ImageFile]
    layers: list[Layer] = []
    listing: Listing | None = None
    connections: list[Connection]
    listening: list[tuple[str, int]]
    outlets: list[Outlet] = []
    stopped_by: int | None = Field(
        None,
        description="signal that was about to kill a process of the target and is withheld in the commit",
    )
    stopped_pid: int | None = Field(
        None,
        description="pid, in the target's PID namespace, of a process that stands before its death: the signal, or else its exit",
    )
    stopped_thread: int | None = None
    container: ContainerFacts | None = None

    @model_validator(mode="after")
    def _container_fits(self) -> Self:
        claims = {
            self.container is not None,
            self.target.kind is TargetKind.CONTAINER,
            *([self.version == CONTAINER_VERSION] if self.version < MANIFEST_VERSION else []),
        }
        if len(claims) > 1:
            raise ValueError("version, kind of target and container contradict each other")
        return self

    @model_serializer(mode="wrap")
    def _without_later_fields(self, inner: SerializerFunctionWrapHandler) -> dict[str, Any]:
        # A commit from before these fields keeps its bytes, and with them its id.
        later = ("container", "listing")
        return {name: value for name, value in inner(self).items() if name not in later or value is not None}
