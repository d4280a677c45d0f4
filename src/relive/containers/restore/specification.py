"""What a container's commit tells of what its engine had set up: read from the members of its checkpoint archive.

They come from elsewhere, so nothing in them is trusted: whatever is not as it should be counts as not told, but for what a
restore cannot do without.
"""

from __future__ import annotations

import ipaddress
import json
import posixpath
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from relive.containers.archive.layout import CONFIG, SPEC
from relive.errors import RestoreFailed
from relive.model.commit import EntryKind, FileEntry, LayerKind, Manifest
from relive.store import Store

__all__ = ["BindMount", "ContainerSpecification", "read_specification"]

_NETWORK, _STREAMS = "network.status", "checkpoint/descriptors.json"
_MEMBER_MOST = 16 << 20  # [bytes]
_HEX_DIGITS = 64  # of an image's id


@dataclass(frozen=True, slots=True)
class BindMount:
    """A directory or file of the host that the container had at ``destination``.

    Attributes:
        volume: name of the engine's volume that it is, None for any other.
    """

    destination: str
    source: str
    volume: str | None
    read_only: bool


@dataclass(frozen=True, slots=True)
class ContainerSpecification:
    """A container's surroundings.

    Attributes:
        image: id of its image, which is the SHA-256 of the image's configuration, in hexadecimal; "" where it is not told.
        image_name: what it was asked for by; "" as above.
        binds: by destination.
        masked: paths that nobody in it shall read.
        addresses: its own, by which others had reached it.
        streams: what CRIU calls its standard input, output and error, such as ``pipe:[123]``.
        user: (uid, gid) of its first process.
        members: the archive's files, by path.
    """

    image: str
    image_name: str
    hostname: str
    binds: dict[str, BindMount]
    masked: frozenset[str]
    addresses: list[str]
    streams: list[str]
    user: tuple[int, int]
    members: dict[str, FileEntry]


def read_specification(store: Store, manifest: Manifest) -> ContainerSpecification:
    """Read it.

    Raises:
        ObjectMissing, ObjectCorrupt: a member is gone or damaged.
        RestoreFailed: the container's configuration is none.
    """
    members = {
        entry.path: entry
        for layer in manifest.layers
        if layer.kind is LayerKind.ARCHIVE
        for entry in layer.entries
        if entry.kind is EntryKind.FILE
    }
    read = _Members(store, members)
    config, spec = read.object(CONFIG), read.object(SPEC)
    user = _object(_object(spec.get("process")).get("user"))
    return ContainerSpecification(
        image=_image_id(config),
        image_name=_text(config.get("rootfsImageName"))
        or (manifest.container.image if manifest.container else ""),
        hostname=_text(spec.get("hostname")),
        binds={bind.destination: bind for bind in _binds(spec, config)},
        masked=frozenset(_texts(_object(spec.get("linux")).get("maskedPaths"))),
        addresses=sorted(set(_addresses(read.lenient(_NETWORK)))),
        streams=_texts(read.lenient(_STREAMS)),
        user=(_number(user.get("uid")), _number(user.get("gid"))),
        members=members,
    )


class _Members:
    def __init__(self, store: Store, entries: dict[str, FileEntry]) -> None:
        self._store = store
        self._entries = entries

    def lenient(self, path: str) -> Any:
        """The JSON of a member; None where there is none."""
        entry = self._entries.get(path)
        if entry is None or entry.size > _MEMBER_MOST:
            return None
        try:
            return json.loads(self._store.files.content(entry))
        except (ValueError, RecursionError):
            return None

    def object(self, path: str) -> dict[str, Any]:
        found = self.lenient(path)
        if not isinstance(found, dict):
            raise RestoreFailed(
                "the container cannot be set up again",
                cause=f"the commit's {path} is missing, or no JSON object",
                remedy="import the container's checkpoint again",
            )
        return found


def _object(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _text(value: object) -> str:
    return value if isinstance(value, str) and "\0" not in value else ""


def _texts(value: object) -> list[str]:
    return [one for one in _list(value) if isinstance(one, str) and "\0" not in one]


def _number(value: object) -> int:
    return value if isinstance(value, int) and 0 <= value < 1 << 32 else 0


def _image_id(config: dict[str, Any]) -> str:
    """podman's words, then CRI-O's."""
    for key in ("rootfsImageID", "rootfsImageRef"):
        found = _text(config.get(key)).removeprefix("sha256:")
        if len(found) == _HEX_DIGITS and all(char in "0123456789abcdef" for char in found):
            return found
    return ""


def _binds(spec: dict[str, Any], config: dict[str, Any]) -> Iterator[BindMount]:
    volumes = {
        posixpath.normpath(_text(one.get("dest")) or "/"): _text(one.get("volumeName"))
        for one in map(_object, _list(config.get("namedVolumes")))
    }
    for mount in map(_object, _list(spec.get("mounts"))):
        options = _texts(mount.get("options"))
        destination = posixpath.normpath(_text(mount.get("destination")) or "/")
        if mount.get("type") == "bind" or {"bind", "rbind"} & set(options):
            yield BindMount(
                destination=destination,
                source=_text(mount.get("source")),
                volume=volumes.get(destination) or None,
                read_only="ro" in options,
            )


def _addresses(status: object) -> Iterator[str]:
    """Of every interface in every network: ``{NETWORK: {"interfaces": {NAME: {"subnets": [{"ipnet": "ADDRESS/BITS"}]}}}}``."""
    for network in map(_object, _object(status).values()):
        for interface in map(_object, _object(network.get("interfaces")).values()):
            for subnet in map(_object, _list(interface.get("subnets"))):
                try:
                    yield str(ipaddress.ip_interface(_text(subnet.get("ipnet"))).ip)
                except ValueError:
                    continue
