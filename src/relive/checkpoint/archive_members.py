"""What a container's commit holds beside images and files: members of a checkpoint archive, in a layer of kind ``archive``."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

from relive.checkpoint.target import Contained
from relive.model.commit import EntryKind, FileEntry, Layer, LayerKind
from relive.store import Store

__all__ = ["store_members"]

_DELETED = "deleted.files"
_ROOT = "/"


def store_members(store: Store, staging: Path, contained: Contained, layers: list[Layer]) -> Layer:
    """The layer; ``staging`` is a directory on the store's file system."""
    members: dict[str, bytes | Path | FileEntry] = dict(contained.members)
    root = next(layer for layer in layers if layer.point == _ROOT)
    if deleted := _deleted(root.entries, contained.lower):
        members[_DELETED] = json.dumps(deleted).encode()
    entries = []
    for number, (path, content) in enumerate(sorted(members.items())):
        if isinstance(content, FileEntry):
            entries.append(content)
            continue
        if isinstance(content, bytes):
            copy = staging / f"member-{number}"
            copy.write_bytes(content)
        else:
            copy = content
        length = copy.stat().st_size
        name = store.ingest_file(copy, ("", path))
        entries.append(FileEntry(path=path, kind=EntryKind.FILE, mode=0o600, size=length, object=name))
    return Layer(point="", kind=LayerKind.ARCHIVE, entries=entries)


def _deleted(entries: list[FileEntry], lower: tuple[Path, ...]) -> list[str]:
    """Paths of the image that the container does not see any more, each with a leading slash, as podman writes them.

    An opaque directory hides all that its image has below it and that is not there anew.
    """
    present = {entry.path for entry in entries}
    gone = {entry.path for entry in entries if entry.kind is EntryKind.WHITEOUT}
    for entry in entries:
        if entry.opaque:
            gone |= _hidden(entry.path, present, lower)
    return sorted(f"/{path}" for path in gone)


def _hidden(below: str, present: set[str], lower: tuple[Path, ...]) -> set[str]:
    found: set[str] = set()
    for layer in lower:
        try:
            children = list(os.scandir(layer / below))
        except (FileNotFoundError, NotADirectoryError):
            continue
        for child in children:
            path = f"{below}/{child.name}"
            if path not in present:
                found.add(path)
            elif stat.S_ISDIR(child.stat(follow_symlinks=False).st_mode):
                found |= _hidden(path, present, lower)
    return found
