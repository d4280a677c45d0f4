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
    from relive.store.pages.table import PackIndex

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
        )
    try:
        return _LAYERS.validate_json(data)
    except ValueError as error:
        raise ObjectCorrupt(
            "the list of the commit's files cannot be read",
            cause=str(error).splitlines()[0],
            remedy="use the Relive that wrote it",
        ) from error


def check_listing(listing: Listing, index: PackIndex) -> list[Layer]:
    """The layers; raises ObjectCorrupt also where a file has no content in the index."""
    layers = checked_layers(listing, index.listing)
    missing = [name for name in contents_of(layers) if name not in index.contents.positions]
    if missing:
        raise ObjectCorrupt(
            "the commit's index is damaged",
            cause=f"content {missing[0][:12]} is not in it",
        )
    return layers


def contents_of(layers: Sequence[Layer]) -> list[str]:
    """Names of all contents, each once, in the order of the listing."""
    names = (entry.object for layer in layers for entry in layer.entries)
    return list(dict.fromkeys(name for name in names if name is not None))
