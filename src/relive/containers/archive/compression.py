"""What an archive is packed with: told from its first bytes when it is read, from its name or by request when it is written."""

from __future__ import annotations

import contextlib
import gzip
import io
import zlib
from collections.abc import Callable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import BinaryIO, cast

import zstandard

from relive.errors import UsageError
from relive.remotes.archive import invalid

__all__ = ["Compression", "by_suffix", "decompressed", "find_compression", "packing"]

_MAGIC_MOST = 6
_WINDOW_MOST = 1 << 27  # [bytes] of memory that a zstd frame may ask for, as `zstd --long` makes them
_GZIP_LEVEL, _ZSTD_LEVEL = 6, 3  # podman's own
_ZSTD_MAGIC, _GZIP_MAGIC = b"\x28\xb5\x2f\xfd", b"\x1f\x8b"
_OTHERS = {b"BZh": "bzip2", b"\xfd7zXZ\0": "xz", b"\x04\x22\x4d\x18": "lz4"}


class Compression(StrEnum):
    """As podman's ``--compress`` calls them."""

    NONE = "none"
    GZIP = "gzip"
    ZSTD = "zstd"


_SUFFIXES = {
    ".tar": Compression.NONE,
    ".tar.gz": Compression.GZIP,
    ".tgz": Compression.GZIP,
    ".tar.zst": Compression.ZSTD,
    ".tzst": Compression.ZSTD,
}


def by_suffix(path: Path) -> Compression:
    """What the name of a file asks for; raises UsageError where it asks for nothing."""
    for suffix, compression in _SUFFIXES.items():
        if path.name.endswith(suffix):
            return compression
    raise UsageError(
        f"{path.name!r} does not say how to compress the archive",
        cause=f"it ends in none of {', '.join(_SUFFIXES)}",
        remedy="name the file so, or give --compress",
    )


def find_compression(name: str, file: BinaryIO) -> Compression:
    """What a file, which must stand at its begin and stays there, is packed with.

    Raises:
        ArchiveInvalid: it is packed with something that no engine of containers uses.
    """
    begin = file.read(_MAGIC_MOST)
    file.seek(0)
    if begin.startswith(_ZSTD_MAGIC):
        return Compression.ZSTD
    if begin.startswith(_GZIP_MAGIC):
        return Compression.GZIP
    for magic, other in _OTHERS.items():
        if begin.startswith(magic):
            raise invalid(name, f"it is compressed with {other}, and only gzip and zstd are read: unpack it")
    return Compression.NONE


def decompressed(name: str, file: BinaryIO, compression: Compression) -> Callable[[int], bytes]:
    """A function that gives the next bytes of the tar, fewer than asked for only at the end.

    However small the file is, no more memory is taken than was asked for, besides a window of 128 MiB at most. The
    function raises ArchiveInvalid where the file is damaged or cut off.
    """
    match compression:
        case Compression.NONE:
            source = file
        case Compression.GZIP:
            source = cast(BinaryIO, gzip.GzipFile(fileobj=file, mode="rb"))
        case Compression.ZSTD:
            opener = zstandard.ZstdDecompressor(max_window_size=_WINDOW_MOST)
            source = cast(BinaryIO, opener.stream_reader(file, read_across_frames=True, closefd=False))

    def read(size: int) -> bytes:
        parts, left = [], size
        while left:
            try:
                data = source.read(left)
            except (EOFError, gzip.BadGzipFile, zlib.error, zstandard.ZstdError) as error:
                raise invalid(name, f"it cannot be unpacked: {error}") from error
            if not data:
                break
            parts.append(data)
            left -= len(data)
        return b"".join(parts)

    return read


class _Sink(io.RawIOBase):
    """What the packers write to."""

    def __init__(self, write: Callable[[bytes], object]) -> None:
        self._write = write

    def writable(self) -> bool:
        return True

    def write(self, data: object) -> int:
        content = bytes(cast(bytes, data))
        self._write(content)
        return len(content)


@contextlib.contextmanager
def packing(
    write: Callable[[bytes], object], compression: Compression
) -> Iterator[Callable[[bytes], object]]:
    """Within the block, what is written comes out packed at ``write``; the last of it when the block ends well."""
    match compression:
        case Compression.NONE:
            yield write
        case Compression.GZIP:
            # No time and no name in the header: equal commits make equal files.
            gzipped = gzip.GzipFile(
                filename="", fileobj=_Sink(write), mode="wb", compresslevel=_GZIP_LEVEL, mtime=0
            )
            yield gzipped.write
            gzipped.close()
        case Compression.ZSTD:
            packer = zstandard.ZstdCompressor(level=_ZSTD_LEVEL, write_checksum=True)
            with packer.stream_writer(cast(BinaryIO, _Sink(write)), closefd=False) as zipped:
                yield zipped.write
