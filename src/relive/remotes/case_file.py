"""A case file: an incident with all that a replay of it needs beside the commits, as one file.

Bytes: the magic ``RELIVECF``, version (u32), 1 if it is sealed (u32), 16 random bytes, 16 bytes that are 0; then frames, each its
length (u32) and so many bytes. Numbers are little-endian. The frames together are a tar packed with zstd; in a sealed store each of
them is sealed as a frame of a pack is (``store.pages.sealing``), under a key of its own that the 16 random bytes make.

The tar holds regular files only, of these names: ``case.json`` (``CaseFacts``), ``incident.json`` (as ``N.json``), ``beside/WHAT``
for each file ``N.WHAT``, ``beside/bodies/NAME``, and ``life/...``: slices of the life's recordings under their own names, the part
of its standard error that belongs to the failure, and what its TLS was opened with.
"""

from __future__ import annotations

import io
import os
import re
import struct
import tarfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, cast

import zstandard
from pydantic import BaseModel, ConfigDict

from relive.errors import ArchiveInvalid, KeyMissing, StoreVersionUnknown
from relive.store.keyring import Keyring
from relive.store.pages.sealing import FrameSeal, open_with_any

__all__ = ["CaseFacts", "read_case", "write_case"]

_MAGIC = b"RELIVECF"
_VERSION = 1
_HEAD = struct.Struct("<8sII16s16x")
_LENGTH = struct.Struct("<I")
_FRAME = 1 << 20  # [bytes]
_FRAME_MOST = 2 * _FRAME
_MOST = 4 << 30  # [bytes] of all files together
_FILES_MOST = 100_000
_NAME = re.compile(
    r"case\.json|incident\.json|beside/[a-z]+(\.[a-z]+)?|beside/bodies/[0-9A-Za-z._-]+"
    r"|life/(recording|inside|egress)/[0-9]{20}\.events|life/inside/bodies/[0-9A-Za-z._-]+"
    r"|life/stderr|life/beginnings\.jsonl|life/authority/[0-9A-Za-z._-]+"
)


class CaseFacts(BaseModel):
    """What a case file says of itself.

    Attributes:
        id: of the incident, the same wherever it is; see ``cases.incident_id``.
        number: that it has where it was seen; stderr_begin: where in the life's standard error ``life/stderr`` begins.
    """

    model_config = ConfigDict(frozen=True)

    id: str
    number: int
    stderr_begin: int = 0


def write_case(
    target: Path, files: Sequence[tuple[str, Path | bytes, int]], keyring: Keyring, *, sealed: bool
) -> None:
    """Write a case file.

    Args:
        files: names, what they hold, and how many bytes of it.
        sealed: with the store key.
    """
    secret, salt = keyring.store_key() if sealed else None, os.urandom(16)
    head = _HEAD.pack(_MAGIC, _VERSION, int(sealed), salt)
    with target.open("xb") as file:
        file.write(head)
        frames = _Frames(file, FrameSeal(secret, salt, head) if secret is not None else None)
        packer = zstandard.ZstdCompressor(level=3).stream_writer(cast(IO[bytes], frames), closefd=False)
        with packer, tarfile.open(fileobj=packer, mode="w|", format=tarfile.GNU_FORMAT) as tar:
            for name, source, size in files:
                info = tarfile.TarInfo(name)
                info.size, info.mode = size, 0o600
                with io.BytesIO(source) if isinstance(source, bytes) else source.open("rb") as content:
                    tar.addfile(info, content)
        frames.finish()
        os.fsync(file.fileno())


class _Frames(io.RawIOBase):
    """A file to which all is written in frames."""

    def __init__(self, file: IO[bytes], seal: FrameSeal | None) -> None:
        self._file, self._seal = file, seal
        self._held = bytearray()
        self._number = 0

    def writable(self) -> bool:
        return True

    def write(self, data: bytes) -> int:  # type: ignore[override]
        self._held += data
        while len(self._held) >= _FRAME:
            self._put(bytes(self._held[:_FRAME]))
            del self._held[:_FRAME]
        return len(data)

    def finish(self) -> None:
        if self._held:
            self._put(bytes(self._held))

    def _put(self, frame: bytes) -> None:
        data = self._seal.seal(self._number, frame) if self._seal is not None else frame
        self._number += 1
        self._file.write(_LENGTH.pack(len(data)) + data)


def read_case(path: Path, target: Path, keyring: Keyring) -> CaseFacts:
    """Lay the files of a case file below an empty directory.

    Raises:
        ArchiveInvalid: it is none, was cut off, or names what no case file holds; the directory is of no use then.
        StoreVersionUnknown: a newer Relive wrote it. KeyMissing, KeyWrong: it is sealed with another key.
    """
    total = count = 0
    with path.open("rb") as file:
        source = io.BufferedReader(_Unframed(_open_frames(file, keyring)), _FRAME)
        try:
            unpacked = zstandard.ZstdDecompressor(max_window_size=1 << 27).stream_reader(source)
            with tarfile.open(fileobj=unpacked, mode="r|") as tar:
                for member in tar:
                    total, count = total + member.size, count + 1
                    if not member.isreg() or not _NAME.fullmatch(member.name):
                        raise _invalid(f"it holds {member.name[:80]!r}, which no case file does")
                    if total > _MOST or count > _FILES_MOST:
                        raise _invalid("it is too large")
                    content = tar.extractfile(member)
                    assert content is not None
                    _lay(target / member.name, content)
            return CaseFacts.model_validate_json((target / "case.json").read_bytes())
        except (tarfile.TarError, zstandard.ZstdError, ValueError, FileNotFoundError, EOFError) as error:
            raise _invalid(str(error)[:200]) from error


def _lay(path: Path, content: IO[bytes]) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
        while data := content.read(_FRAME):
            file.write(data)


def _open_frames(file: IO[bytes], keyring: Keyring) -> Iterator[bytes]:
    head = file.read(_HEAD.size)
    if len(head) != _HEAD.size or not head.startswith(_MAGIC):
        raise _invalid("it does not begin as one")
    _, version, sealed, salt = _HEAD.unpack(head)
    if version != _VERSION or sealed > 1:
        raise StoreVersionUnknown(
            f"a case file has format {version}",
            cause=f"this Relive reads format {_VERSION}",
            remedy="use the Relive that wrote it",
        )
    seals = [FrameSeal(key, salt, head) for key in _keys(keyring)] if sealed else []
    if sealed and not seals:
        raise KeyMissing(
            "an incident is sealed and there is no store key here",
            remedy="put the store key it was written with into the keys directory of RELIVE_HOME",
        )
    return _frames(file, seals)


def _keys(keyring: Keyring) -> list[bytes]:
    own = keyring.store_key()
    return [*([own] if own is not None else []), *keyring.old_store_keys()]


def _frames(file: IO[bytes], seals: Sequence[FrameSeal]) -> Iterator[bytes]:
    number = 0
    while length := file.read(_LENGTH.size):
        (size,) = _LENGTH.unpack(length) if len(length) == _LENGTH.size else (_FRAME_MOST + 1,)
        data = file.read(size) if size <= _FRAME_MOST else b""
        if len(data) != size:
            raise _invalid("it is cut off")
        yield open_with_any(seals, number, data)[1] if seals else data
        number += 1


class _Unframed(io.RawIOBase):
    """Frames as one stream."""

    def __init__(self, frames: Iterator[bytes]) -> None:
        self._frames, self._held = frames, b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        if not self._held:
            self._held = next(self._frames, b"")
        count = min(len(buffer), len(self._held))
        buffer[:count] = self._held[:count]
        self._held = self._held[count:]
        return count


def _invalid(cause: str) -> ArchiveInvalid:
    return ArchiveInvalid(
        "an incident cannot be taken in", cause=cause, remedy="push it again from where it was seen"
    )
