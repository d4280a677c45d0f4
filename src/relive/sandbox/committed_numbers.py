"""Which inode numbers the files of a commit shall have in a branch (``inode_numbers``)."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping

from relive.images.file_numbers import INODE_NUMBERS, parse_numbers
from relive.model.commit import CommitId, LayerKind, Manifest
from relive.store import Store

__all__ = ["committed_numbers"]

_KEPT = 2  # commits
_known: OrderedDict[CommitId, Mapping[str, int]] = OrderedDict()


def committed_numbers(store: Store, commit: CommitId, manifest: Manifest) -> Mapping[str, int]:
    """Those that files of the commit shall have, by path; none in commits of an older Relive.

    They are read and checked once in a process: they depend on nothing but the commit (as ``fitted_images``).

    Raises:
        ObjectMissing, ObjectCorrupt: the store cannot give them.
    """
    numbers = _known.get(commit)
    if numbers is None:
        numbers = _known[commit] = _read(store, manifest)
        while len(_known) > _KEPT:
            _known.popitem(last=False)
    return numbers


def _read(store: Store, manifest: Manifest) -> dict[str, int]:
    found = store.images.read_small(manifest, INODE_NUMBERS)
    numbers = parse_numbers(INODE_NUMBERS, found) if found is not None else {}
    held = {
        f"{layer.point.rstrip('/')}/{entry.path}"
        for layer in manifest.layers
        if numbers and layer.kind is LayerKind.OVERLAY
        for entry in layer.entries
    }
    return {path: number for path, number in numbers.items() if path in held}
