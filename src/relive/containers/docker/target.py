"""A container of Docker as a target: what CRIU is told, which directories belong to the commit, what it is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from relive.checkpoint.file_layers import LayerScanner, LayerSource
from relive.checkpoint.target import Contained, Target
from relive.containers.docker.api import get
from relive.containers.podman.runtime import externals, outer_descriptors
from relive.errors import PermissionMissing, ProcessGone, TargetUndumpable, TargetUnknown
from relive.kernel import procfs
from relive.model.commit import ContainerFacts, ContainerMount, LayerKind, TargetKind

__all__ = ["docker_target"]

_PREFIX = "docker:"
_SHM = "/dev/shm"


def docker_target(name: str) -> Target:
    """All that is needed to commit a container that runs; good for as long as it does.

    Raises:
        ToolMissing: no engine answers.
        TargetUnknown: it has no such container.
        TargetUndumpable: it does not run, or is of a kind that cannot be committed.
    """
    facts = get("containers", name, "json") if name else None
    if facts is None:
        raise TargetUnknown(
            f"there is no container {name!r}",
            cause="Docker knows none of that name or id",
            remedy="`docker ps --all` lists them",
        )
    _refuse(facts)
    try:
        return _described(facts)
    except PermissionError as error:
        raise PermissionMissing(
            f"committing {_PREFIX}{name} needs root", cause=str(error), remedy="run it with sudo"
        ) from error
    except (FileNotFoundError, ProcessLookupError, NotADirectoryError) as error:
        raise ProcessGone(
            f"container {name} is gone",
            cause=f"it ended or was removed just now ({error})",
            remedy="`docker ps --all` lists containers",
        ) from None


def _refuse(facts: dict[str, Any]) -> None:
    name, state = str(facts["Name"]).removeprefix("/"), facts["State"]
    if state["Status"] != "running" or not state["Pid"]:
        raise TargetUndumpable(
            f"container {name} cannot be committed",
            cause=f"it is {state['Status']}, and only a running one has a live state",
            remedy=f"`docker {'unpause' if state.get('Paused') else 'start'} {name}`",
        )
    driver = facts.get("GraphDriver") or {}
    if "UpperDir" not in (driver.get("Data") or {}):
        raise TargetUndumpable(
            f"container {name} cannot be committed",
            cause=f"Docker's storage driver {driver.get('Name')} does not keep what a container changed apart from its image",
            remedy='use "storage-driver": "overlay2" in daemon.json',
        )


def _described(facts: dict[str, Any]) -> Target:
    pid, layers, identifier = int(facts["State"]["Pid"]), facts["GraphDriver"]["Data"], str(facts["Id"])
    spec_bytes = (_bundle(pid) / "config.json").read_bytes()
    spec = json.loads(spec_bytes)
    lower = tuple(Path(one) for one in layers["LowerDir"].split(":"))
    about = _facts(facts)
    contained = Contained(
        facts=about,
        root=layers["MergedDir"],
        external=externals(pid, spec, about.runtime),
        members={
            "config.dump": _configuration(facts, about),
            "spec.dump": spec_bytes,
            "network.status": b"null",
            "checkpoint/descriptors.json": json.dumps(outer_descriptors(pid, identifier)).encode(),
        },
        lower=lower,
    )
    return Target(
        kind=TargetKind.CONTAINER,
        name=str(facts["Name"]).removeprefix("/"),
        life=identifier,
        root=pid,
        inside=False,
        command=[str(facts["Path"]), *map(str, facts.get("Args") or [])],
        sources=_sources(layers, spec),
        contained=contained,
    )


def _bundle(pid: int) -> Path:
    """The directory with the OCI configuration: its monitor, the parent of its process 1, stands in it.

    Its place depends on how Docker was set up, and its API does not tell it.
    """
    stat = procfs.read_stat(pid)
    if stat is None:
        raise ProcessLookupError(pid, "no such process")
    return Path(f"/proc/{stat.parent}/cwd")


def _facts(facts: dict[str, Any]) -> ContainerFacts:
    mounts = [one for one in facts.get("Mounts") or [] if one.get("Type") in ("bind", "volume")]
    ports = (facts.get("NetworkSettings") or {}).get("Ports") or {}
    host = facts.get("HostConfig") or {}
    return ContainerFacts(
        engine="docker",
        id=str(facts["Id"]),
        image=str(facts["Config"].get("Image") or facts["Image"]),
        runtime=str(host.get("Runtime") or "runc"),
        created=str(facts["Created"]),
        image_id=str(facts["Image"]).removeprefix("sha256:"),
        network=str(host.get("NetworkMode") or ""),
        ports=sorted(
            f"{one.get('HostIp') or '0.0.0.0'}:{one['HostPort']}:{inner}"
            for inner, outer in ports.items()
            for one in outer or []
        ),
        mounts=[
            ContainerMount(
                volume=one.get("Name") or "",
                source=one["Source"],
                destination=one["Destination"],
                writable=bool(one.get("RW")),
            )
            for one in mounts
        ],
    )


def _configuration(facts: dict[str, Any], about: ContainerFacts) -> bytes:
    """In the words of a checkpoint archive, as far as checkpointctl reads them."""
    inspected = {
        "id": about.id,
        "name": str(facts["Name"]).removeprefix("/"),
        "rootfsImageName": about.image,
        "rootfsImageID": about.image_id,
        "runtime": about.runtime,
        "createdTime": about.created,
    }
    return json.dumps(inspected, indent=5).encode()


def _sources(layers: dict[str, str], spec: dict[str, Any]) -> list[LayerSource]:
    root = LayerScanner(Path(layers["UpperDir"]), merged=Path(layers["MergedDir"]))
    sources = [LayerSource("/", LayerKind.OVERLAY, root)]
    for mount in spec.get("mounts") or []:
        if mount.get("destination") == _SHM and Path(mount.get("source") or "-").is_absolute():
            sources.append(LayerSource(_SHM, LayerKind.TMPFS, LayerScanner(Path(mount["source"]))))
    return sources
