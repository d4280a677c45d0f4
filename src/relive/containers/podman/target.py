"""A container of podman as a target: what CRIU is told, which directories belong to it, what its engine must be given back."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from relive.checkpoint.file_layers import LayerScanner, LayerSource
from relive.checkpoint.target import Contained, Target
from relive.config import Settings
from relive.containers.podman.container import PodmanContainer, network_status
from relive.containers.podman.database import read_configuration
from relive.containers.podman.runtime import externals, outer_descriptors
from relive.containers.podman.volumes import open_files_of_volumes, whole_volumes
from relive.errors import ProcessGone
from relive.model.commit import ContainerFacts, ContainerMount, LayerKind, TargetKind

__all__ = ["container_target"]

_SHORT_ID = 12  # [digits]
_SHM = "/dev/shm"


def container_target(container: PodmanContainer, settings: Settings, *, with_volumes: bool = False) -> Target:
    """All that is needed to commit it; good for as long as it runs.

    Args:
        with_volumes: all of the volumes and writable directories of the host that are mounted into it belong to the commit.

    Raises:
        ProcessGone: it ended meanwhile.
        TargetUndumpable: podman's database does not tell of it.
    """
    try:
        spec = json.loads(container.spec.read_bytes())
        external = externals(container.pid, spec, container.runtime)
        descriptors = outer_descriptors(container.pid, container.id)
    except FileNotFoundError:
        raise ProcessGone(
            f"container {container.name} is gone",
            cause="it ended or was removed just now",
            remedy="`podman ps --all` lists containers",
        ) from None
    configuration = read_configuration(container.graph_root, container.id)
    contained = Contained(
        facts=_facts(container),
        root=spec["root"]["path"],
        external=external,
        members={
            "config.dump": _text(_for_archive(configuration, container.id)),
            "spec.dump": container.spec.read_bytes(),
            "network.status": network_status(container),
            "checkpoint/descriptors.json": json.dumps(descriptors).encode(),
        },
        lower=container.lower,
    )
    return Target(
        kind=TargetKind.CONTAINER,
        name=container.name,
        life=container.id,
        root=container.pid,
        inside=False,
        command=container.command,
        sources=[
            *_own_files(container, configuration, spec),
            *(
                whole_volumes(container)
                if with_volumes
                else open_files_of_volumes(
                    container, _mount_points(spec), settings.open_file_limit, settings.home
                )
            ),
        ],
        contained=contained,
    )


def _facts(container: PodmanContainer) -> ContainerFacts:
    return ContainerFacts(
        engine="podman",
        id=container.id,
        image=container.image,
        runtime=container.runtime,
        created=container.created,
        image_id=container.image_id,
        image_digest=container.image_digest,
        network=container.network_mode,
        ports=container.ports,
        mounts=[ContainerMount(**asdict(one) | {"source": str(one.source)}) for one in container.mounted],
    )


def _for_archive(configuration: dict[str, Any], container: str) -> dict[str, Any]:
    """As podman exports it: without the alias by its own id in its networks, since a restored one has another."""
    networks = configuration.get("newNetworks") or {}
    for options in networks.values():
        aliases = [one for one in options.get("aliases") or [] if one != container[:_SHORT_ID]]
        if aliases:
            options["aliases"] = aliases
        else:
            options.pop("aliases", None)
    return configuration


def _mount_points(spec: dict[str, Any]) -> list[str]:
    return [str(one.get("destination")) for one in spec.get("mounts") or []]


def _own_files(
    container: PodmanContainer, configuration: dict[str, Any], spec: dict[str, Any]
) -> list[LayerSource]:
    root = LayerScanner(container.upper, merged=container.merged)
    sources = [LayerSource("/", LayerKind.OVERLAY, root)]
    shm = configuration.get("ShmDir") or ""
    # Elsewhere it is that of the host, or of another container, whose memory is not this one's to keep.
    if Path(shm).is_relative_to(container.graph_root) and any(
        one.get("source") == shm and one.get("destination") == _SHM for one in spec.get("mounts") or []
    ):
        sources.append(LayerSource(_SHM, LayerKind.TMPFS, LayerScanner(Path(shm))))
    return sources


def _text(value: Any) -> bytes:
    return json.dumps(value, indent=5).encode()
