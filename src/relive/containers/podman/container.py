"""A container of podman as its engine describes it, found by name or id."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from relive.containers.podman.command import ask, refuse_without_root
from relive.errors import TargetUndumpable, TargetUnknown

__all__ = ["Mounted", "PodmanContainer", "find_container", "network_status", "parse_target"]

_PREFIX = "podman:"
_RUNTIMES = ("runc", "crun", "youki")  # whose containers are plain processes of this kernel
_REMEDIES = {
    "paused": "run `podman unpause {}` first: CRIU cannot freeze what its control group has frozen already",
    "exited": "start it: `podman start {}`",
    "stopped": "start it: `podman start {}`",
    "created": "start it: `podman start {}`",
    "configured": "start it: `podman start {}`",
}


@dataclass(frozen=True, slots=True)
class Mounted:
    """A directory or file of the host, or a volume, that a container sees.

    Attributes:
        volume: the volume's name; empty for a bind mount.
        source: where it lies on the host.
    """

    volume: str
    source: Path
    destination: str
    writable: bool


@dataclass(frozen=True, slots=True)
class PodmanContainer:
    """What ``podman inspect`` says, as far as it is of use.

    Attributes:
        pid: host pid of its process 1.
        image, image_id, image_digest: name, id and manifest digest of its image; the digest is empty where podman has none.
        upper, lower, merged: of its overlay: what it wrote, the image's layers from the uppermost, both together.
        graph_root: podman's storage.
        spec: the OCI configuration that its runtime was given.
        mounted: without tmpfs, which CRIU saves.
        ports: as ``HOST:HOSTPORT:PORT/PROTOCOL``.
        network_mode: such as "bridge", "none", "host".
    """

    id: str
    name: str
    pid: int
    runtime: str
    created: str
    image: str
    image_id: str
    image_digest: str
    upper: Path
    lower: tuple[Path, ...]
    merged: Path
    graph_root: Path
    spec: Path
    command: list[str]
    mounted: list[Mounted]
    ports: list[str]
    network_mode: str
    networks: dict[str, Any]


def parse_target(target: str) -> str | None:
    """The name or id in ``podman:NAME``; None for targets of other kinds."""
    return target.removeprefix(_PREFIX) if target.startswith(_PREFIX) else None


def find_container(name: str) -> PodmanContainer:
    """A container that runs.

    Raises:
        PermissionMissing: the caller is not root.
        ToolMissing: there is no podman.
        TargetUnknown: podman has no such container.
        TargetUndumpable: it does not run, or is of a kind that cannot be committed.
    """
    refuse_without_root(f"committing {_PREFIX}{name}")
    answer = ask("container", "inspect", "--format", "json", "--", name)
    if answer.status != 0:
        raise TargetUnknown(
            f"there is no container {name!r}",
            cause=f"podman says: {answer.said}",
            remedy="`podman ps --all` lists root's containers; those of another user are in that user's podman",
        )
    facts = answer.json()[0]
    _refuse_idle(facts)
    _refuse_strange(facts)
    return _described(facts)


def _refuse_idle(facts: dict[str, Any]) -> None:
    state, name = facts["State"], facts["Name"]
    status = "paused" if state.get("Paused") else state["Status"]
    if status == "running" and state.get("Pid"):
        return
    raise TargetUndumpable(
        f"container {name} cannot be committed",
        cause=f"it is {status}, and only a running one has a live state",
        remedy=_REMEDIES.get(status, "wait until it runs: `podman ps --all`").format(name),
    )


def _refuse_strange(facts: dict[str, Any]) -> None:
    name, runtime = facts["Name"], Path(str(facts.get("OCIRuntime", ""))).name
    driver = facts.get("GraphDriver") or {}
    if runtime not in _RUNTIMES:
        raise TargetUndumpable(
            f"container {name} cannot be committed",
            cause=f"its runtime {runtime} does not run it as processes of this kernel",
            remedy="run it with `podman --runtime runc run ...`",
        )
    if facts.get("Rootfs") or not facts.get("Image"):
        raise TargetUndumpable(
            f"container {name} cannot be committed",
            cause="it runs from a directory (--rootfs) instead of an image, so what it changed cannot be told apart",
            remedy="`podman import` the directory and run the image",
        )
    if driver.get("Name") != "overlay" or "UpperDir" not in (driver.get("Data") or {}):
        raise TargetUndumpable(
            f"container {name} cannot be committed",
            cause=f"podman's storage driver {driver.get('Name')} does not keep what a container changed apart from its image",
            remedy='use `driver = "overlay"` in storage.conf (with a storage of its own, `graphroot`), or commit an '
            "archive of `podman container checkpoint --leave-running --export` with `relive import`",
        )


def _described(facts: dict[str, Any]) -> PodmanContainer:
    layers = facts["GraphDriver"]["Data"]
    mounts = [one for one in facts.get("Mounts") or [] if one.get("Type") in ("bind", "volume")]
    return PodmanContainer(
        id=facts["Id"],
        name=facts["Name"],
        pid=facts["State"]["Pid"],
        runtime=Path(facts["OCIRuntime"]).name,
        created=facts["Created"],
        image=facts["ImageName"],
        image_id=facts["Image"],
        image_digest=facts.get("ImageDigest") or "",
        upper=Path(layers["UpperDir"]),
        lower=tuple(Path(one) for one in layers["LowerDir"].split(":")),
        merged=Path(layers.get("MergedDir") or Path(layers["UpperDir"]).parent / "merged"),
        graph_root=Path(facts["StaticDir"]).parents[2],
        spec=Path(facts["OCIConfigPath"]),
        command=[facts["Path"], *(facts.get("Args") or [])],
        mounted=[
            Mounted(one.get("Name") or "", Path(one["Source"]), one["Destination"], bool(one.get("RW")))
            for one in mounts
        ],
        ports=_ports(facts["NetworkSettings"].get("Ports") or {}),
        network_mode=facts["HostConfig"].get("NetworkMode") or "",
        networks=facts["NetworkSettings"].get("Networks") or {},
    )


def _ports(ports: dict[str, Any]) -> list[str]:
    """The published ones, in order."""
    found = [
        f"{one.get('HostIp') or '0.0.0.0'}:{one['HostPort']}:{inner}"
        for inner, outer in ports.items()
        for one in outer or []
    ]
    return sorted(found)


def network_status(container: PodmanContainer) -> bytes:
    """The member ``network.status`` of a checkpoint archive: which addresses it had, for a restore that gives them again."""
    status = {
        name: {
            "interfaces": {
                f"eth{number}": {
                    "subnets": [
                        {
                            "ipnet": f"{one['IPAddress']}/{one['IPPrefixLen']}",
                            "gateway": one.get("Gateway") or "",
                        }
                    ],
                    "mac_address": one.get("MacAddress") or "",
                }
            }
        }
        for number, (name, one) in enumerate(sorted(container.networks.items()))
        if one.get("IPAddress")
    }
    return json.dumps(status or None).encode()
