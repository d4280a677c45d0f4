"""Images of a dump before that has no pages: with them CRIU fills all private memory before its restorer runs, by a library's call.

It does so where a commit has a parent, as pages may lie in either. Libraries that are loaded into CRIU can then fill memory in
their way (``native/template_shim.c``, ``native/pages_shim.c``); the restorer makes its system calls itself.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from relive.images import criu_images_pb2 as pb

__all__ = ["Heads", "lay_empty_parent", "read_heads"]

_PARENT = "parent"  # CRIU's name for the images of the dump before
_SHARED = "pagemap-shmem-"
_HEAD = 12  # [bytes] before the first message of an image: two magic numbers, its length

Heads = Mapping[
    str, tuple[bytes, int]
]  # by the name of a pagemap: its bytes without pages, and the N of its page file


def read_heads(images: Path) -> Heads:
    """Of all processes in a directory of images.

    Raises:
        OSError: it cannot be read.
    """
    names = (name for name in os.listdir(images) if name.startswith("pagemap-") and name.endswith(".img"))
    return {name: _head((images / name).read_bytes()) for name in names if not name.startswith(_SHARED)}


def lay_empty_parent(images: Path, heads: Heads) -> None:
    """Lay it beside images of which these are the heads.

    Raises:
        OSError: it cannot be written.
    """
    parent = images / _PARENT
    parent.mkdir()
    for name, (head, pages) in heads.items():
        (parent / name).write_bytes(head)
        os.link(f"{parent}/{name}", f"{parent}/pages-{pages}.img")  # nothing is ever read from it


def _head(pagemap: bytes) -> tuple[bytes, int]:
    length = int.from_bytes(pagemap[_HEAD - 4 : _HEAD], "little")
    head = pagemap[: _HEAD + length]
    return head, pb.PagemapHead.FromString(head[_HEAD:]).pages_id
