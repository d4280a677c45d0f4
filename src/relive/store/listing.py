"""The listing of a commit: what its layers are, as bytes. It lies in the commit's index; the manifest has its hash."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pydantic import TypeAdapter

from relive.errors import ObjectCorrupt
from relive.model.commit import MANIFEST_VERSION, Layer, Listing, Manifest
from relive.store.objects import hash_bytes

if TYPE_CHECKING:
    from relive.store.pages.table import Index

__all__ = ["check_listing", "checked_layers", "contents_of", "encode_layers", "listed"]

_LAYERS = TypeAdapter(list[Layer])


def encode_layers(layers: list[Layer]) -> bytes:
    """JSON, keys sorted, no blanks, UTF-8; what has its default value is left out."""
    value = _LAYERS.dump_python(layers, mode="json", exclude_defaults=True)
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def listed(manifest: Manifest) -> tuple[Manifest, bytes]:
    """The manifest with the facts of its listing, and the listing; of an older version, or without layers, as it is and empty."""
    if manifest.version < MANIFEST_VERSION or not manifest.layers:
        return manifest, b""
    data = encode_layers(manifest.layers)
    files = sum(entry.size for layer in manifest.layers for entry in layer.entries)
    facts = Listing(object=hash_bytes(data), size=len(data), files=files)
    return manifest.model_copy(update={"listing": facts}), data


def checked_layers(listing: Listing, data: bytes) -> list[Layer]:
    """The layers that the bytes tell; raises ObjectCorrupt where they are not what the manifest says."""
    if hash_bytes(data) != listing.object:
        raise ObjectCorrupt(
            "the list of the commit's files is damaged",
            cause="what its packs hold does not match the manifest",
            remedy="use another commit (`relive log`)",
        )
    try:
        return _LAYERS.validate_json(data)
    except ValueError as error:
        raise ObjectCorrupt(
            "the list of the commit's files cannot be read",
            cause=str(error).splitlines()[0],
            remedy="use the Relive that wrote it",
        ) from error


def check_listing(listing: Listing, index: Index) -> list[Layer]:
    """The layers; raises ObjectCorrupt also where a file has no content in the index, or one of another size."""
    layers = checked_layers(listing, index.listing)
    there = dict(zip(index.contents.names, index.contents.sizes.tolist(), strict=True))
    for name, size in contents_of(layers).items():
        if there.get(name) != size:
            raise ObjectCorrupt(
                "the commit's index is damaged",
                cause=f"content {name[:12]} is not in it, or has another size than the list of files says",
                remedy="use another commit (`relive log`)",
            )
    return layers


def contents_of(layers: Sequence[Layer]) -> dict[str, int]:
    """Names and sizes in bytes of all contents, each once, in the order of the listing.

    Raises:
        ObjectCorrupt: a content has two sizes.
    """
    found: dict[str, int] = {}
    for layer in layers:
        for entry in layer.entries:
            if entry.object is not None and found.setdefault(entry.object, entry.size) != entry.size:
                raise ObjectCorrupt(
                    f"the commit names a file {entry.path!r} of {entry.size} bytes",
                    cause="another file of the same content has another size",
                    remedy="do not trust this commit",
                )
    return found
