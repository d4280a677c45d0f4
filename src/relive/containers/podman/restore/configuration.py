"""What podman is told of a container that comes back: its configuration as committed, but for what would tie it to the world.

``config.dump`` is podman's ``ContainerConfig``, ``spec.dump`` the OCI runtime specification; podman wants the latter in both. All
of this is done with values; nothing is read or written.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from relive.model.commit import ContainerMount

__all__ = ["COMMIT_LABEL", "Dress", "dressed", "mounts_of"]

_OTHERS = ("pod", "netNsCtr", "ipcNsCtr", "utsNsCtr", "pidNsCtr", "userNsCtr", "mntNsCtr", "cgroupNsCtr")
_SHARED = ("ipc", "uts", "cgroup")  # namespaces that CRIU saves, and that may have been another container's
COMMIT_LABEL = "relive.commit"

Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Dress:
    """How it comes back.

    Attributes:
        network: file of its network namespace.
        mounts: other sources of what is bound into it, by destination.
        runtime: that runs it; empty: as before.
        image_id: by which podman finds its image, whatever name that has now; empty: by its name.
    """

    commit: str
    network: Path
    mounts: Mapping[str, Path]
    runtime: str
    image_id: str


def dressed(config: Object, spec: Object, dress: Dress) -> tuple[Object, Object]:
    """Both files anew; the arguments stay as they are."""
    config, spec = copy.deepcopy(config), copy.deepcopy(spec)
    for one in (spec, config.get("spec") or {}):
        _seal(one, dress)
        _rebind(one, dress.mounts)
    for key in (
        *_OTHERS,
        "newNetworks",
        "networks",
        "newPortMappings",
        "portMappings",
        "staticIP",
        "staticMAC",
    ):
        config.pop(key, None)
    config["dependencies"] = config["Dependencies"] = None
    config["createNetNS"] = False
    config["networkMode"] = f"ns:{dress.network}"
    config["namedVolumes"] = [
        one for one in config.get("namedVolumes") or [] if one.get("dest") not in dress.mounts
    ]
    config["labels"] = (config.get("labels") or {}) | {COMMIT_LABEL: dress.commit}
    if dress.runtime:
        config["runtime"] = dress.runtime
    if dress.image_id:
        config["rootfsImageName"] = dress.image_id
    return config, spec


def mounts_of(config: Object) -> list[ContainerMount]:
    """What a configuration mounts into its container: volumes, and what was asked for of the host's directories."""
    volumes = {one.get("dest"): one.get("volumeName") or "" for one in config.get("namedVolumes") or []}
    wanted = {*volumes, *(config.get("userVolumes") or [])}
    return [
        ContainerMount(
            volume=volumes.get(one["destination"], ""),
            source=one.get("source") or "",
            destination=one["destination"],
            writable="ro" not in (one.get("options") or []),
        )
        for one in (config.get("spec") or {}).get("mounts") or []
        if one.get("type") == "bind" and one.get("destination") in wanted
    ]


def _seal(spec: Object, dress: Dress) -> None:
    namespaces = spec.setdefault("linux", {}).setdefault("namespaces", [])
    for one in namespaces:
        if one.get("type") in _SHARED:
            one.pop("path", None)
    # Also where it was in the host's network: what `podman exec` starts in it shall be sealed, too.
    others = [one for one in namespaces if one.get("type") != "network"]
    spec["linux"]["namespaces"] = [*others, {"type": "network", "path": str(dress.network)}]


def _rebind(spec: Object, mounts: Mapping[str, Path]) -> None:
    for one in spec.get("mounts") or []:
        if one.get("destination") in mounts:
            one["source"] = str(mounts[one["destination"]])
