"""Checkpoint archives for tests: two that podman 4.3.1 wrote, and what can be made of them.

``files/counter-1.tar.gz`` and, a second later, ``files/counter-2.tar.zst``: `podman container checkpoint --export` of a container
``counter`` that runs ``tests/programs/counter.c`` alone, which had counted to about 9 and 14.
"""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import zstandard
from google.protobuf.message import Message

FILES = Path(__file__).parent / "files"
FIRST, SECOND = FILES / "counter-1.tar.gz", FILES / "counter-2.tar.zst"


@dataclass(frozen=True)
class Entry:
    """One entry of a tar; ``kind`` as tarfile has it."""

    name: str
    data: bytes = b""
    kind: bytes = tarfile.REGTYPE
    facts: Mapping[str, object] = field(default_factory=dict)


def plain(path: Path) -> bytes:
    """The tar within an archive."""
    data = path.read_bytes()
    if data.startswith(b"\x28\xb5\x2f\xfd"):
        with zstandard.ZstdDecompressor().stream_reader(data, read_across_frames=True) as reader:
            return reader.read()
    with tarfile.open(path) as file:
        assert file.fileobj is not None
        file.fileobj.seek(0)
        return file.fileobj.read()


def entries_of(data: bytes) -> list[Entry]:
    """The entries of a tar, read by another reader than Relive's."""
    found = []
    with tarfile.open(fileobj=io.BytesIO(data)) as file:
        for info in file:
            content = file.extractfile(info) if info.isreg() else None
            facts = {"mode": info.mode & 0o7777, "mtime": info.mtime, "uid": info.uid, "gid": info.gid}
            found.append(Entry(info.name, content.read() if content else b"", info.type, facts))
    return found


def contents_of(data: bytes) -> dict[str, bytes]:
    """Name and content of each file of a tar."""
    return {entry.name: entry.data for entry in entries_of(data) if entry.kind == tarfile.REGTYPE}


def tar_of(entries: Iterable[Entry], *, format: int = tarfile.PAX_FORMAT) -> bytes:
    """A tar as the standard library writes it."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=format) as file:
        for entry in entries:
            info = tarfile.TarInfo(entry.name)
            info.type, info.size = entry.kind, len(entry.data)
            for name, value in entry.facts.items():
                setattr(info, name, value)
            file.addfile(info, io.BytesIO(entry.data))
    return buffer.getvalue()


def changed(path: Path, files: Mapping[str, bytes | None]) -> list[Entry]:
    """The entries of an archive, some with other contents; None: left out."""
    found = entries_of(plain(path))
    assert files.keys() <= {entry.name for entry in found}
    return [
        replace(entry, data=files.get(entry.name, entry.data) or b"")
        for entry in found
        if files.get(entry.name, b"") is not None
    ]


def image(head: bytes, *entries: Message) -> bytes:
    """The bytes of one of CRIU's images, with the first eight bytes of another."""
    bodies = (entry.SerializeToString() for entry in entries)
    return head[:8] + b"".join(len(body).to_bytes(4, "little") + body for body in bodies)
