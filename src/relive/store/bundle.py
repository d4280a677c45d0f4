"""The bundle: CRIU's many small images as one. Msgpack, a map from file name to bytes, names in order."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgpack

from relive.errors import ObjectCorrupt
from relive.model.commit import ImageFile
from relive.store.objects import hash_bytes

__all__ = ["BUNDLE", "checked_bundle", "pack_bundle", "plain_name", "unpack_bundle", "write_bundle"]

BUNDLE = "bundle"  # its name among the images of a manifest


def pack_bundle(small: Mapping[str, bytes]) -> bytes:
    """The bytes of a bundle."""
    packed: bytes = msgpack.packb(dict(sorted(small.items())))
    return packed


def unpack_bundle(data: bytes) -> dict[str, bytes]:
    """The opposite; raises ObjectCorrupt, since a commit may come from elsewhere."""
    try:
        found = msgpack.unpackb(data)
    except (ValueError, msgpack.exceptions.UnpackException) as error:
        raise _bad_bundle(f"{type(error).__name__}: {error}") from error
    if not isinstance(found, dict):
        raise _bad_bundle("it is no map")
    for name, content in found.items():
        if not isinstance(name, str) or not isinstance(content, bytes):
            raise _bad_bundle("it is no map from names to bytes")
    return found


def checked_bundle(image: ImageFile, data: bytes) -> bytes:
    """The bundle; raises ObjectCorrupt where it is not what the manifest says."""
    if hash_bytes(data) != image.object:
        raise ObjectCorrupt(
            "the commit's small images are damaged",
            cause="what its packs hold does not match the manifest",
        )
    return data


def write_bundle(data: bytes, directory: Path) -> None:
    """Write the small images out; raises ObjectCorrupt as ``unpack_bundle``, and for a name that is a path."""
    for name, content in unpack_bundle(data).items():
        # A new file: were it a link to a page file, writing would change the object itself.
        with (directory / plain_name(name)).open("xb") as file:
            file.write(content)


def plain_name(name: str) -> str:
    """The name of an image, which becomes that of a file; raises ObjectCorrupt where it is none."""
    if "/" in name or "\0" in name or name in ("", ".", ".."):
        raise ObjectCorrupt(
            f"the commit names an image {name!r}", cause="no image is called so", remedy="do not trust it"
        )
    return name


def _bad_bundle(cause: str) -> ObjectCorrupt:
    return ObjectCorrupt("the commit's small images cannot be read", cause=cause, remedy="do not trust it")
