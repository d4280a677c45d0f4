"""The envelope of an encrypted archive: its bytes in frames, each a Fernet token on a line of its own.

Fernet needs a token whole in memory, so there are many. Behind the first line, which says what this is, each token holds
16 random bytes that are the same in all of a file, its number, whether it is the last, and up to ``FRAME_SIZE`` bytes. So
frames cannot be left out, put in another order, cut off or taken from another archive unnoticed.

Keys are Fernet's: 32 bytes in URL-safe Base64, one a line, the newest first. The first encrypts, all are tried to decrypt.
"""

from __future__ import annotations

import base64
import binascii
import os
import string
import struct
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from cryptography.fernet import Fernet, InvalidToken, MultiFernet

from relive.errors import ArchiveInvalid, KeyMissing, KeyWrong, StoreVersionUnknown
from relive.remotes.archive import invalid

__all__ = ["FRAME_SIZE", "Opener", "Sealer", "is_sealed", "read_keys"]

FRAME_SIZE = 4 << 20  # [bytes] of the archive in a frame
_MAGIC = b"relive-sealed-archive"
_FIRST_LINE = _MAGIC + b" 1\n"
_HEAD = struct.Struct("<16sQ?")
_LINE_MOST = (FRAME_SIZE + 4096) * 4 // 3
_ALPHABET = (string.ascii_letters + string.digits + "-_").encode()


def read_keys(path: Path | None) -> MultiFernet:
    """The keys of a file; empty lines and such that begin with ``#`` count for nothing.

    Raises:
        KeyMissing: no file was named, or there is none, or no key in it. KeyWrong: a line holds no key.
    """
    if path is None:
        raise KeyMissing(
            "encrypting needs keys",
            cause="no file of keys was named",
            remedy="give --key-file, or set RELIVE_EXPORT_KEYS",
        )
    try:
        lines = path.read_text(errors="replace").splitlines()
    except OSError as error:
        raise KeyMissing(
            f"the keys {path} cannot be read", cause=str(error), remedy=_MAKE.format(path)
        ) from error
    keys = []
    for number, line in enumerate(lines, 1):
        if line.strip() and not line.startswith("#"):
            try:
                keys.append(Fernet(line.strip()))
            except (ValueError, binascii.Error) as error:
                raise KeyWrong(
                    f"line {number} of {path} holds no key",
                    cause="a key is 32 bytes in URL-safe Base64, 44 characters",
                    remedy="correct the line",
                ) from error
    if not keys:
        raise KeyMissing(f"{path} holds no key", cause="it is empty", remedy=_MAKE.format(path))
    return MultiFernet(keys)


_MAKE = "make one: `head -c 32 /dev/urandom | base64 | tr +/ -_ >> {}`"


def is_sealed(file: BinaryIO) -> bool:
    """The file, which must stand at its begin and stays there, is an envelope."""
    begin = file.read(len(_MAGIC))
    file.seek(0)
    return begin == _MAGIC


class Sealer:
    """Writes an envelope; ``finish`` must be called, else it is one that was cut off."""

    def __init__(self, keys: MultiFernet, write: Callable[[bytes], object]) -> None:
        self._keys = keys
        self._write = write
        self._id = os.urandom(16)
        self._number = 0
        self._waiting = bytearray()
        write(_FIRST_LINE)

    def write(self, data: bytes) -> None:
        """Append."""
        self._waiting += data
        while len(self._waiting) > FRAME_SIZE:  # what is just as long may be the last
            self._frame(bytes(self._waiting[:FRAME_SIZE]), is_last=False)
            del self._waiting[:FRAME_SIZE]

    def finish(self) -> None:
        """Write what is left, as the last frame."""
        self._frame(bytes(self._waiting), is_last=True)

    def _frame(self, data: bytes, *, is_last: bool) -> None:
        self._write(self._keys.encrypt(_HEAD.pack(self._id, self._number, is_last) + data) + b"\n")
        self._number += 1


class Opener:
    """Reads an envelope; ``read`` raises ArchiveInvalid where it is not as it was written."""

    def __init__(self, name: str, keys: MultiFernet, file: BinaryIO) -> None:
        self._name = name
        self._keys = keys
        self._file = file
        self._id: bytes | None = None
        self._number = 0
        self._is_last = False
        self._waiting = b""
        first = file.readline(len(_FIRST_LINE) + 1)
        if first != _FIRST_LINE:
            if first.startswith(_MAGIC + b" ") and first.endswith(b"\n"):
                raise StoreVersionUnknown(
                    f"the archive {name} is sealed in another way",
                    cause=f"it says {first.decode(errors='replace').strip()!r}",
                    remedy="use the Relive that wrote it",
                )
            raise invalid(name, "it does not begin as a sealed archive does")

    def read(self, size: int) -> bytes:
        """The next bytes, fewer than ``size`` only at the end."""
        parts, left = [], size
        while left:
            if not self._waiting:
                if self._is_last:
                    break
                self._waiting = self._next_frame()
                continue
            parts.append(self._waiting[:left])
            self._waiting = self._waiting[left:]
            left -= len(parts[-1])
        return b"".join(parts)

    def _next_frame(self) -> bytes:
        line = self._file.readline(_LINE_MOST)
        if not line.endswith(b"\n"):
            raise invalid(self._name, "it is cut off")
        data = self._decrypted(line[:-1])
        archive_id, number, is_last = _HEAD.unpack_from(data)
        if self._id is None:
            self._id = archive_id
        if archive_id != self._id or number != self._number:
            raise invalid(self._name, f"frame {self._number} does not stand where it should")
        self._number += 1
        self._is_last = is_last
        if is_last and self._file.read(1):
            raise invalid(self._name, "something stands behind its last frame")
        return data[_HEAD.size :]

    def _decrypted(self, token: bytes) -> bytes:
        try:
            if not _is_written_by_fernet(token):
                raise InvalidToken
            data = self._keys.decrypt(token)
            if len(data) < _HEAD.size:
                raise InvalidToken
        except (InvalidToken, ValueError):
            raise self._unopened() from None
        return data

    def _unopened(self) -> KeyWrong | ArchiveInvalid:
        if self._number == 0:
            return KeyWrong(
                f"{self._name} cannot be opened with these keys",
                cause="it was encrypted with another key, or changed since",
                remedy="name the file of keys it was exported with: --key-file or RELIVE_EXPORT_KEYS",
            )
        return invalid(self._name, f"frame {self._number} was changed")


def _is_written_by_fernet(token: bytes) -> bool:
    """Base64 can say the same in more than one way: by characters that mean nothing, and by bits left over at the end."""
    end = token[-4:]
    return not token[:-4].translate(None, _ALPHABET) and (
        base64.urlsafe_b64encode(base64.urlsafe_b64decode(end)) == end
    )
