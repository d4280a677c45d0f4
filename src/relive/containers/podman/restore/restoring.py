"""Restoring a container's commit with podman, sealed.

1. The small images are laid out; beside it, podman is asked for the image.
2. A network namespace is made, in which the addresses that it used are local and nothing leads out; who carries published ports
   begins to listen.
3. podman is given a checkpoint archive in which the configuration is as committed but for name, network and mounts, and whose page
   files are missing. It makes the container and has runc restore it, which finds Relive's CRIU in its PATH, as a script.
4. Meanwhile the page files are laid out. The script waits for them, links them in, and runs CRIU.
5. What carries the ports is tied to the container's process 1.

Established connections are closed for the processes: their other ends are the original's.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import time
import uuid
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Self

from pydantic import BaseModel, ConfigDict

from relive.checkpoint.criu import CriuTools
from relive.checkpoint.criu_errors import explain
from relive.checkpoint.kernel_cache import place_kerndat
from relive.config import Settings
from relive.containers.archive.exporting import ArchiveChanges, write_checkpoint
from relive.containers.archive.layout import CONFIG, IMAGE, SPEC
from relive.containers.podman.command import CommandResult, PodmanCall, ask, refuse_without_root
from relive.containers.podman.restore.configuration import Dress, dressed, mounts_of
from relive.containers.podman.restore.criu_script import CriuForRuntime
from relive.containers.podman.restore.images import ready_image
from relive.containers.podman.restore.mounts import own_copies
from relive.containers.podman.restore.network import (
    external_network,
    has_processes,
    make_network,
    remove_network,
)
from relive.errors import (
    ReliveError,
    RestoreFailed,
    RestoreTimedOut,
    RestoreUnsupported,
    ToolMissing,
    UsageError,
)
from relive.images.sockets import bound_addresses, read_files
from relive.kernel import procfs
from relive.kernel.claims import new_claimed
from relive.model.branch import Publication
from relive.model.commit import CommitId, ContainerMount, LayerKind, Manifest
from relive.recording.rings import RingMode
from relive.sandbox.port_forward import Forwarder
from relive.sandbox.rings import make_rings
from relive.sandbox.rootfs import RINGS_DIRECTORY
from relive.sandbox.unfinished import sweep_unfinished
from relive.store import Store

__all__ = ["Revived", "restore_container"]

_STATE = "state.json"
_UNSPECIFIED = ("0.0.0.0", "::")
_RUNTIME = "runc"
_NO_IMAGE = "image not known"  # in podman's words
_NAME_TAKEN = "is already in use"
# Kinds of namespaces that must be its own, with the option that prevents it.
_OWN = (
    ("pid", "--pid=host", "where the numbers of its processes are the original's"),
    ("ipc", "--ipc=host", "so it would write into the memory that the original shares with others"),
)


class Revived(BaseModel):
    """A commit that is a container of podman again, as ``$RELIVE_HOME/containers/DIRECTORY/state.json`` says it.

    Attributes:
        id, name: podman's.
        init: host pid of its process 1; with ``init_started`` (clock ticks after boot) it names it for good.
        restore_us: microseconds from the request until podman had it running.
    """

    model_config = ConfigDict(frozen=True)

    id: str
    name: str
    commit: CommitId
    init: int
    init_started: int
    restore_us: int
    publications: list[Publication] = []


def restore_container(
    settings: Settings,
    store: Store,
    commit: CommitId,
    name: str,
    publish: Sequence[tuple[str, int, int]] = (),
    *,
    share_volumes: bool = False,
) -> Revived:
    """Have podman run the commit of a container; the original, if it still runs, is not touched.

    Args:
        publish: (host's address, host's port, container's port) of each port that can be reached from the host.
        share_volumes: what is mounted into it and was not committed is used together with the original.

    Raises:
        RestoreUnsupported: it is no commit of podman's, its image is not there, or it would write to the original's files.
        UsageError: podman has a container of this name, or a port is taken.
        RestoreFailed, RestoreTimedOut, SealBroken: it did not come to life; nothing is left of it.
        PermissionMissing, ToolMissing: as they say.
        RefUnknown, StoreError: the store cannot give the commit.
    """
    refuse_without_root("restoring a container")
    began = time.monotonic()
    manifest = store.manifest(commit)
    _refuse_others(manifest)
    tools = CriuTools(settings.tools_path)
    tools.check()
    place_kerndat(tools.directory)
    settings.containers.mkdir(parents=True, exist_ok=True)
    directory = settings.containers / uuid.uuid4().hex[:8]
    try:
        with (
            new_claimed(directory),
            ThreadPoolExecutor(1) as aside,
            _Reviving(settings, store, commit, manifest, directory, name, share_volumes) as reviving,
        ):
            # Beside it, since it calls podman for each container that has ended; what fails the next restore tries again.
            aside.submit(_sweep, settings.containers)
            identifier, init = reviving.run(publish)
            restore_us = int((time.monotonic() - began) * 1e6)
            revived = Revived(
                id=identifier,
                name=name,
                commit=commit,
                init=init,
                init_started=_started(init),
                restore_us=restore_us,
                publications=reviving.tie(init),
            )
            (directory / _STATE).write_text(revived.model_dump_json(indent=2))
    except BaseException:
        remove_network(directory / "network")
        shutil.rmtree(directory, ignore_errors=True)
        raise
    return revived


def _sweep(containers: Path) -> None:
    """Remove what was kept for containers that podman does not have any more, and what a killed restore left."""
    sweep_unfinished(containers, _STATE, _let_go)
    for directory in containers.iterdir():
        try:
            kept = Revived.model_validate_json((directory / _STATE).read_bytes())
        except (OSError, ValueError):
            continue  # one that is being restored
        if procfs.is_same_process(kept.init, kept.init_started):
            continue
        if ask("container", "exists", kept.id).status == 1:
            remove_network(directory / "network")
            shutil.rmtree(directory, ignore_errors=True)


def _let_go(directory: Path) -> bool:
    """End the network of a restore that was killed; False where a container lives in it, which podman has started all the same."""
    if has_processes(directory / "network"):
        return False
    remove_network(directory / "network")
    return True


def _started(pid: int) -> int:
    facts = procfs.read_stat(pid)
    if facts is None:
        raise RestoreFailed(
            "the container ended at once",
            cause="its process 1 was gone when podman had restored it",
            remedy="`podman logs` tells what it said",
        )
    return facts.start_ticks


def _refuse_others(manifest: Manifest) -> None:
    if manifest.container is None:
        raise UsageError(
            f"{manifest.target.name} is no container",
            cause="podman needs a container's image and configuration",
            remedy="leave --as podman out",
        )
    if manifest.container.engine != "podman":
        raise RestoreUnsupported(
            f"{manifest.target.name} was no container of podman",
            cause=f"its configuration is that of {manifest.container.engine}",
            remedy="leave --as podman out",
        )


class _Reviving:
    """One restore; leaving the block ends what was begun in vain."""

    def __init__(
        self,
        settings: Settings,
        store: Store,
        commit: CommitId,
        manifest: Manifest,
        directory: Path,
        name: str,
        share_volumes: bool,
    ) -> None:
        self._settings = settings
        self._store = store
        self._commit = commit
        self._manifest = manifest
        self._directory = directory
        self._name = name
        self._share_volumes = share_volumes
        self._forwarders: list[Forwarder] = []
        self._is_tied = False
        self._members = {
            entry.path: entry
            for layer in manifest.layers
            if layer.kind is LayerKind.ARCHIVE
            for entry in layer.entries
        }
        self._config, self._spec = self._object(CONFIG), self._object(SPEC)
        self._refuse_shared()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if not self._is_tied:
            for forwarder in self._forwarders:
                forwarder.end()

    def run(self, publish: Sequence[tuple[str, int, int]]) -> tuple[str, int]:
        """(podman's id of the container, host pid of its process 1)."""
        staging = self._store.stage()
        try:
            with ThreadPoolExecutor(1) as aside, self._store.transfers.hold(self._commit) as outgoing:
                image = aside.submit(self._ready_image)
                self._store.images.lay_out_small(self._manifest, staging.images)
                network = self._make_network(staging.images)
                for host, host_port, port in publish:
                    self._forwarders.append(Forwarder(str(network), host, host_port, port))
                changes = self._changes(staging.images, network)
                archive = staging.directory / "archive.tar"
                write_checkpoint(self._manifest, staging, outgoing, archive, changes)
                image.result()
                identifier = self._restore(archive, network, staging.images)
        finally:
            staging.discard()
        return identifier, _init_of(identifier)

    def tie(self, init: int) -> list[Publication]:
        """Let published ports be carried for as long as the process lives."""
        found = [forwarder.tie_to(init) for forwarder in self._forwarders]
        self._is_tied = True
        return found

    def _refuse_shared(self) -> None:
        namespaces = (self._spec.get("linux") or {}).get("namespaces") or []
        own = {one.get("type") for one in namespaces}
        for kind, option, why in _OWN:
            if kind not in own:
                raise RestoreUnsupported(
                    f"{self._manifest.target.name} cannot be restored as a sealed container",
                    cause=f"it shared this host's {kind} namespace ({option}), {why}",
                    remedy=f"start the service without {option} and commit it again",
                )

    def _object(self, path: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self._store.files.content(self._members[path]))
        return found

    def _ready_image(self) -> None:
        entry = self._members.get(IMAGE)
        held = None
        if entry is not None and entry.object is not None:
            held = self._store.files.content_file(entry)
        static = str(self._config.get("staticDir") or "")
        # GRAPHROOT/overlay-containers/ID/userdata.
        graph_root = Path(static).parents[2] if static.count("/") > 3 else None
        ready_image(self._image_id, str(self._config.get("rootfsImageName")), held, graph_root)

    @property
    def _image_id(self) -> str:
        return str(self._config.get("rootfsImageID"))

    def _make_network(self, images: Path) -> Path:
        files = read_files(images)
        point = self._directory / "network"
        make_network(point, (one for one in bound_addresses(files) if one not in _UNSPECIFIED))
        return point

    def _changes(self, images: Path, network: Path) -> ArchiveChanges:
        mounts = self._mounts()
        recorder = [one for one in mounts if one.destination == str(RINGS_DIRECTORY)]
        copies = own_copies(
            self._store,
            self._manifest,
            [one for one in mounts if one not in recorder],
            self._directory / "volumes",
            shared=self._share_volumes,
        )
        if recorder:
            rings = self._directory / "rings"
            rings.mkdir()
            rings.chmod(0o1777)
            make_rings(read_files(images), rings, RingMode.FREE)
            copies[recorder[0].destination] = rings
        dress = Dress(
            commit=self._commit,
            network=network,
            mounts=copies,
            runtime=_runtime(str(self._config.get("runtime"))),
            image_id=self._image_id,
        )
        config, spec = dressed(self._config, self._spec, dress)
        return ArchiveChanges(
            members={
                CONFIG: json.dumps(config).encode(),
                SPEC: json.dumps(spec).encode(),
                "network.status": b"null",
            },
            images={} if self._shares_host else external_network(images),
            here=True,
        )

    def _mounts(self) -> list[ContainerMount]:
        """As the commit tells, or, of an imported archive, what its configuration says of volumes and binds."""
        assert self._manifest.container is not None
        return self._manifest.container.mounts or mounts_of(self._config)

    @property
    def _shares_host(self) -> bool:
        """It was in the host's network: no namespace is in its images, so CRIU itself has to be where it shall be."""
        kinds = [one.get("type") for one in (self._spec.get("linux") or {}).get("namespaces") or []]
        return "network" not in kinds

    def _restore(self, archive: Path, network: Path, images: Path) -> str:
        criu = CriuForRuntime(
            CriuTools(self._settings.tools_path),
            images=images,
            network=network if self._shares_host else None,
            masked=(self._spec.get("linux") or {}).get("maskedPaths") or [],
            directory=self._directory / "bin",
        )
        try:
            call = PodmanCall(
                "container",
                "restore",
                f"--import={archive}",
                f"--name={self._name}",
                "--file-locks",
                "--ignore-volumes",
                path=[criu.directory],
                variables={"CONTAINERS_REGISTRIES_CONF": str(self._without_registries())},
            )
            try:
                self._store.images.lay_out_page_files(self._manifest, images)
                criu.open()
            except BaseException:
                criu.close()
                self._clean_up_after(self._answer(call))
                raise
            answer = self._answer(call)
        finally:
            criu.close()
        if answer.status != 0:
            raise self._failure(answer, criu)
        return answer.output.split()[-1]

    def _answer(self, call: PodmanCall) -> CommandResult:
        limit = self._settings.restore_limit * 2
        try:
            return call.answer(limit)
        except subprocess.TimeoutExpired:
            self._clean_up()
            raise RestoreTimedOut(
                f"the restore of {self._name} was given up",
                cause=f"podman took longer than {limit:g} s",
                remedy="raise `restore_limit` in relive.toml",
            ) from None

    def _without_registries(self) -> Path:
        """A configuration by which podman fetches nothing, should the image be gone in this moment."""
        path = self._directory / "registries.conf"
        path.write_text("unqualified-search-registries = []\n")
        return path

    def _failure(self, answer: CommandResult, criu: CriuForRuntime) -> ReliveError:
        if _NAME_TAKEN in answer.errors:
            return UsageError(
                f"podman has a container {self._name!r} already",
                cause=f"podman says: {answer.said}",
                remedy="give another --name, or remove that one: `podman rm --force NAME`",
            )
        self._clean_up()
        if _NO_IMAGE in answer.errors:
            # It was listed where podman kept its images when this was committed; the podman of now has others.
            ready_image(self._image_id, str(self._config.get("rootfsImageName")), None, None)
        lines = criu.errors()
        if not lines:
            return RestoreFailed(
                f"{self._name} was not restored",
                cause=f"podman says: {answer.said}",
                remedy="`relive restore` without --as podman brings it back in Relive's own sandbox",
            )
        explanation = explain(lines)
        return RestoreFailed(
            f"{self._name} was not restored: {explanation.what}",
            cause=f"CRIU says: {explanation.sentence}",
            remedy=explanation.remedy,
        )

    def _clean_up_after(self, answer: CommandResult) -> None:
        if _NAME_TAKEN not in answer.errors:  # that container is somebody's
            self._clean_up()

    def _clean_up(self) -> None:
        ask("rm", "--force", "--ignore", "--time=0", self._name)


def _runtime(name: str) -> str:
    """The runtime to restore with, empty for that of the commit; runc restores what crun without CRIU cannot."""
    base = Path(name).name
    if base == _RUNTIME or (base == "crun" and _has_criu(name)):
        if shutil.which(name) is None:
            raise _no_runtime(name)
        return ""
    if shutil.which(_RUNTIME) is None:
        raise _no_runtime(name)
    return _RUNTIME


def _has_criu(crun: str) -> bool:
    try:
        said = subprocess.run([crun, "--version"], capture_output=True, text=True, check=False).stdout
    except OSError:
        return False
    return "+CRIU" in said


def _no_runtime(name: str) -> ToolMissing:
    return ToolMissing(
        "no runtime of containers can restore it",
        cause=f"it ran with {name}, which is absent or was built without CRIU, and there is no `runc` in PATH",
        remedy="install runc, or a crun that was built with CRIU (`crun --version` then says +CRIU)",
    )


def _init_of(identifier: str) -> int:
    """Host pid of a container's process 1, from its runtime's state or else from podman."""
    for path in (Path("/run/runc") / identifier / "state.json", Path("/run/crun") / identifier / "status"):
        try:
            found = json.loads(path.read_bytes())
        except (OSError, ValueError):
            continue
        pid = found.get("init_process_pid") or found.get("pid")
        if isinstance(pid, int):
            return pid
    return int(ask("container", "inspect", "--format", "{{.State.Pid}}", identifier).output)
