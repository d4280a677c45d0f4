"""The tar of a checkpoint archive: files and directories with harmless names, and nothing else.

Read as hostile input, from its begin to its end: every header is checked before anything of its content is read, no number in
it decides how much memory is taken, and what could lead out of the archive (absolute paths, ``..``, links) or is no plain data
(devices, pipes, sparse files) is refused by name.
"""

from __future__ import annotations

import re
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from relive.errors import ArchiveInvalid
from relive.remotes.archive import invalid

__all__ = ["Member", "TarReader", "entry_header", "fill", "is_safe", "the_end"]

_BLOCK = 512
_CHUNK = 1 << 20  # [bytes]
_EXTENSION_MOST = 1 << 20  # [bytes] of a long name or a list of PAX records
_MEMBERS_MOST = 100_000
_PATH_MOST = 1024  # [characters]
_PADDING_MOST = 1 << 20  # [bytes] of zeros behind the end
_SIZE_MOST = 1 << 50  # [bytes]
_NAME = re.compile(r"[^/\0]{1,255}")
_RECORD = re.compile(rb"([1-9][0-9]{0,6}) ([^=]+)=")
_TELLING = ("path", "size", "mtime", "uid", "gid")
_KINDS = {
    tarfile.LNKTYPE: "a hard link",
    tarfile.SYMTYPE: "a symbolic link",
    tarfile.CHRTYPE: "a device",
    tarfile.BLKTYPE: "a device",
    tarfile.FIFOTYPE: "a pipe",
    tarfile.GNUTYPE_SPARSE: "a sparse file",
}


@dataclass(frozen=True, slots=True)
class Member:
    """One entry. ``path`` is relative, without ``.`` and ``..``, without a slash at the end.

    ``mode`` are permission bits (07777).
    """

    path: str
    is_directory: bool
    size: int
    mode: int
    uid: int
    gid: int
    mtime_ns: int


class TarReader:
    """Reads a tar once. All methods raise ArchiveInvalid where it is cut off or holds what is refused.

    Args:
        name: of the file, for errors.
        read: gives the next bytes, fewer than asked for only at the end.
    """

    def __init__(self, name: str, read: Callable[[int], bytes]) -> None:
        self._name = name
        self._read = read
        self._left = 0
        self._fill = 0
        self._seen: dict[str, bool] = {}  # whether it is a directory

    def members(self) -> Iterator[Member]:
        """All members; the content of each is to be had from ``chunks`` until the next is asked for."""
        while (member := self._next()) is not None:
            if member.path:
                self._admit(member)
            self._left, self._fill = member.size, -member.size % _BLOCK
            if member.path:
                yield member
            for _ in self.chunks():
                pass
            self._exactly(self._fill)
        self._check_end()

    def chunks(self) -> Iterator[bytes]:
        """What is left of the present member's content."""
        while self._left:
            data = self._exactly(min(self._left, _CHUNK))
            self._left -= len(data)
            yield data

    def _next(self) -> Member | None:
        """The next member; None at the end. Of the directory that is the archive itself, the path is empty."""
        records: dict[str, str] = {}
        while True:
            info = self._header()
            if info is None:
                if records:
                    raise self._invalid("it ends with a header that nothing follows")
                return None
            if info.type == tarfile.XHDTYPE:
                records |= self._pax(info.size)
            elif info.type == tarfile.GNUTYPE_LONGNAME:
                records["path"] = self._text(self._extension(info.size).rstrip(b"\0"))
            else:
                return self._member(info, records)

    def _header(self) -> tarfile.TarInfo | None:
        data = self._exactly(_BLOCK)
        if not any(data):
            return None
        try:
            info = tarfile.TarInfo.frombuf(data, "utf-8", "strict")
        except (tarfile.HeaderError, ValueError) as error:
            raise self._invalid(f"a header is damaged: {error}") from error
        if not 0 <= info.size <= _SIZE_MOST:
            raise self._invalid(f"{info.name!r} has {info.size} bytes")
        return info

    def _member(self, info: tarfile.TarInfo, records: dict[str, str]) -> Member:
        name = records.get("path", info.name)
        if info.type not in (tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.DIRTYPE):
            what = _KINDS.get(info.type, f"an entry of type {info.type!r}")
            raise self._invalid(f"{name!r} is {what}, which no checkpoint archive holds")
        is_directory = info.type == tarfile.DIRTYPE
        size = self._number(records, "size", info.size)
        if is_directory and size:
            raise self._invalid(f"the directory {name!r} has content")
        return Member(
            path=self._safe_path(name, is_directory=is_directory),
            is_directory=is_directory,
            size=size,
            mode=info.mode & 0o7777,
            uid=self._number(records, "uid", info.uid),
            gid=self._number(records, "gid", info.gid),
            mtime_ns=self._time_ns(records, info),
        )

    def _safe_path(self, name: str, *, is_directory: bool) -> str:
        path = name.removeprefix("./")
        if is_directory:
            path = path.rstrip("/")
            if path in ("", ".") and name.startswith("."):
                return ""  # the archive itself
        if not is_safe(path):
            raise self._invalid(
                f"it holds a path {name[:200]!r}, which could lead out of it or means nothing"
            )
        return path

    def _admit(self, member: Member) -> None:
        """Every path once, and none below a file."""
        if member.path in self._seen:
            raise self._invalid(f"it holds {member.path!r} twice")
        parents = member.path.split("/")[:-1]
        for count in range(1, len(parents) + 1):
            if self._seen.get("/".join(parents[:count])) is False:
                raise self._invalid(f"{member.path!r} lies below a file")
        self._seen[member.path] = member.is_directory
        if len(self._seen) > _MEMBERS_MOST:
            raise self._invalid(f"it holds more than {_MEMBERS_MOST} entries")

    # -- headers that belong to the next -------------------------------------------------------------------------

    def _extension(self, size: int) -> bytes:
        if size > _EXTENSION_MOST:
            raise self._invalid(f"a header has {size} bytes")
        return self._exactly(size + -size % _BLOCK)[:size]

    def _pax(self, size: int) -> dict[str, str]:
        """PAX records that matter here: each is ``LENGTH KEY=VALUE`` and a line feed, LENGTH counting all of it."""
        data, found, offset = self._extension(size), {}, 0
        while offset < len(data):
            match = _RECORD.match(data, offset)
            end = offset + int(match[1]) if match else 0
            if match is None or not match.end() < end <= len(data) or data[end - 1 : end] != b"\n":
                raise self._invalid("a PAX header is damaged")
            key = self._text(match[2])
            if key.startswith("GNU.sparse."):
                raise self._invalid("it holds a sparse file, which no checkpoint archive holds")
            if key in _TELLING:
                found[key] = self._text(data[match.end() : end - 1])
            offset = end
        return found

    def _number(self, records: dict[str, str], key: str, otherwise: int) -> int:
        text = records.get(key)
        if text is not None and not re.fullmatch(r"[0-9]{1,15}", text):
            raise self._invalid(f"a PAX header says {key}={text[:40]!r}")
        number = otherwise if text is None else int(text)
        if not 0 <= number <= (_SIZE_MOST if key == "size" else 0xFFFF_FFFE):
            raise self._invalid(f"a header says that {key} is {number}")
        return number

    def _time_ns(self, records: dict[str, str], info: tarfile.TarInfo) -> int:
        text = records.get("mtime", str(int(info.mtime)))
        match = re.fullmatch(r"(-?)([0-9]{1,10})(?:\.([0-9]+))?", text)
        if match is None:
            raise self._invalid(f"a header says that mtime is {text[:40]!r}")
        total = int(match[2]) * 1_000_000_000 + int((match[3] or "")[:9].ljust(9, "0"))
        return max(-(1 << 62), min(-total if match[1] else total, (1 << 62) - 1))

    def _text(self, data: bytes) -> str:
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            raise self._invalid("a header is no UTF-8") from error

    # -- bytes ---------------------------------------------------------------------------------------------------

    def _check_end(self) -> None:
        """Behind the first empty block there are only zeros: a second one, and what fills up the last record."""
        padding = self._read(_PADDING_MOST + 1)
        if any(padding) or len(padding) > _PADDING_MOST:
            raise self._invalid("something stands behind its end")

    def _exactly(self, size: int) -> bytes:
        data = self._read(size)
        if len(data) != size:
            raise self._invalid("it is cut off")
        return data

    def _invalid(self, cause: str) -> ArchiveInvalid:
        return invalid(self._name, cause)


def is_safe(path: str) -> bool:
    """The path is relative, printable, and none of its components is empty, ``.`` or ``..``."""
    parts = path.split("/")
    is_plain = all(_NAME.fullmatch(part) and part not in (".", "..") for part in parts)
    return is_plain and len(path) <= _PATH_MOST and path.isprintable()


def entry_header(member: Member) -> bytes:
    """The header of an entry; its content follows, then ``fill``."""
    info = tarfile.TarInfo(member.path)
    info.type = tarfile.DIRTYPE if member.is_directory else tarfile.REGTYPE
    info.size, info.mode, info.uid, info.gid = member.size, member.mode, member.uid, member.gid
    info.mtime = max(0, member.mtime_ns // 1_000_000_000)
    return info.tobuf(tarfile.PAX_FORMAT)


def fill(size: int) -> bytes:
    """What follows a content of so many bytes."""
    return bytes(-size % _BLOCK)


def the_end() -> bytes:
    """What stands behind the last entry."""
    return bytes(2 * _BLOCK)
