"""Which inode numbers the files of a commit shall have in a branch (``inode_numbers``)."""

from __future__ import annotations

from relive.images.inode_numbers import INODE_NUMBERS, parse_inode_numbers
from relive.model.commit import LayerKind, Manifest
from relive.store import Store

__all__ = ["committed_numbers"]


def committed_numbers(store: Store, manifest: Manifest) -> dict[str, int]:
    """Those that files of the commit shall have, by path; none in commits of an older Relive."""
    found = store.small_image(manifest, INODE_NUMBERS)
    numbers = parse_inode_numbers(found) if found is not None else {}
    held = {
        f"{layer.point.rstrip('/')}/{entry.path}"
        for layer in manifest.layers
        if numbers and layer.kind is LayerKind.OVERLAY
        for entry in layer.entries
    }
    return {path: number for path, number in numbers.items() if path in held}
