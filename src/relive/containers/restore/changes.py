"""Trees of files out of tars: what a container had changed in its root file system, the layers of an image, volumes.

A tar comes from elsewhere and is unpacked as root, so it is read as hostile: no entry may lead out of the directory, by its name
or through a link that came before it.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import stat
import tarfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path, PurePosixPath

from relive.errors import ObjectCorrupt

__all__ = ["delete_files", "deleted_paths", "likeness_of", "unpack_layer", "unpack_tar"]

Likeness = Callable[[PurePosixPath], os.stat_result | None]
"""The facts of a directory that a tree will lie over, by its path; None where there is none."""

_ATTRIBUTE = "SCHILY.xattr."  # of a PAX record
_FORBIDDEN_ATTRIBUTES = ("trusted.",)  # by which overlayfs is told to look elsewhere
_WHITEOUT, _OPAQUE = ".wh.", ".wh..wh..opq"  # image-spec, layer.md
_OVERLAY_OPAQUE = "trusted.overlay.opaque"


def likeness_of(layers: Sequence[Path]) -> Likeness:
    """As the layers of an overlay have it, topmost first."""

    def look(path: PurePosixPath) -> os.stat_result | None:
        for layer in layers:
            with contextlib.suppress(OSError):
                facts = (layer / path).lstat()
                return facts if stat.S_ISDIR(facts.st_mode) else None
        return None

    return look


def unpack_tar(tar: Path, target: Path, like: Likeness) -> None:
    """Unpack a tar below the existing directory ``target``; directories that it does not tell of look as ``like`` says.

    Device nodes are left out where they are whiteouts to an overlay.

    Raises:
        ObjectCorrupt: it is no tar, or an entry leads out of it.
        OSError: the disk is full.
    """
    _Unpacking(target, like).all_of(tar)


def unpack_layer(tar: Path, target: Path) -> None:
    """As ``unpack_tar``, of an image's layer, packed with gzip or not: it also says what of the layers below it is gone.

    Raises:
        ObjectCorrupt, OSError: as ``unpack_tar``.
    """
    _Unpacking(target, lambda _: None, has_whiteouts=True).all_of(tar)


def deleted_paths(data: bytes) -> list[str]:
    """What a ``deleted.files`` lists; raises ObjectCorrupt where it is no list of paths."""
    try:
        found = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise _untrusted("deleted.files", str(error)) from error
    if found is None:
        return []
    if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
        raise _untrusted("deleted.files", "it is no list of paths")
    return found


def delete_files(paths: Sequence[str], target: Path, like: Likeness) -> None:
    """Have the paths, in a tree that will lie over others, hide what is there in those.

    Raises:
        ObjectCorrupt: a path leads out of the tree.
    """
    unpacking = _Unpacking(target, like)
    for path in paths:
        place = unpacking.place(path)
        if not os.path.lexists(place):
            _hide(place)


def _hide(place: Path) -> None:
    os.mknod(place, stat.S_IFCHR, os.makedev(0, 0))


class _Unpacking:
    def __init__(self, target: Path, like: Likeness, *, has_whiteouts: bool = False) -> None:
        self._target = target
        self._like = like
        self._has_whiteouts = has_whiteouts
        self._directories: list[tuple[Path, int]] = []

    def all_of(self, tar: Path) -> None:
        top = self._like(PurePosixPath())
        if top is not None:
            os.chown(self._target, top.st_uid, top.st_gid)
            self._target.chmod(stat.S_IMODE(top.st_mode))
        try:
            with tarfile.open(tar) as source:
                for member in source:
                    self._apply(source, member)
        except (tarfile.TarError, EOFError, zlib.error, ValueError) as error:
            raise _untrusted(tar.name, str(error)) from error
        for path, time_ns in reversed(self._directories):  # making their entries changes them
            os.utime(path, ns=(time_ns, time_ns))

    def place(self, name: str) -> Path:
        """Where an entry goes; the directories above it are there then."""
        path = PurePosixPath(name.lstrip("/"))
        if not path.parts or ".." in path.parts or "\0" in name:
            raise _untrusted(name, "such a path leads out of the tree")
        here, inside = self._target, PurePosixPath()
        for part in path.parts[:-1]:
            here, inside = here / part, inside / part
            if not os.path.lexists(here):
                self._make_parent(here, inside)
            elif not stat.S_ISDIR(here.lstat().st_mode):
                raise _untrusted(name, f"it lies below {part!r}, which is no directory")
        return here / path.name

    def _make_parent(self, here: Path, inside: PurePosixPath) -> None:
        here.mkdir(mode=0o755)
        facts = self._like(inside)
        if facts is not None:
            os.chown(here, facts.st_uid, facts.st_gid)
            here.chmod(stat.S_IMODE(facts.st_mode))

    def _apply(self, source: tarfile.TarFile, member: tarfile.TarInfo) -> None:
        name = PurePosixPath(member.name.lstrip("/"))
        if not name.parts:
            if member.isdir():
                self._furnish(member, self._target)  # the tree itself
            return
        place = self.place(member.name)
        if self._has_whiteouts and name.name.startswith(_WHITEOUT):
            self._white_out(name.name, place)
            return
        if not member.isdir():
            self._clear(place)
        if self._make(source, member, place):
            self._furnish(member, place)

    def _white_out(self, name: str, place: Path) -> None:
        if name == _OPAQUE:
            os.setxattr(place.parent, _OVERLAY_OPAQUE, b"y")
            return
        hidden = place.with_name(name.removeprefix(_WHITEOUT))
        if hidden.name in ("", ".", ".."):
            raise _untrusted(name, "it hides nothing")
        self._clear(hidden)
        _hide(hidden)

    def _clear(self, place: Path) -> None:
        if not os.path.lexists(place):
            return
        if stat.S_ISDIR(place.lstat().st_mode):
            shutil.rmtree(place)
            self._directories = [one for one in self._directories if not one[0].is_relative_to(place)]
        else:
            place.unlink()

    def _make(self, source: tarfile.TarFile, member: tarfile.TarInfo, place: Path) -> bool:
        """Make the entry; whether it has facts of its own."""
        if member.isdir():
            if os.path.lexists(place) and not stat.S_ISDIR(place.lstat().st_mode):
                place.unlink()
            place.mkdir(exist_ok=True)
        elif member.issym():
            place.symlink_to(member.linkname)
        elif member.islnk():
            original = self.place(member.linkname)
            if not os.path.lexists(original) or not stat.S_ISREG(original.lstat().st_mode):
                raise _untrusted(member.name, f"it is a link to {member.linkname!r}, which is no file in it")
            os.link(original, place, follow_symlinks=False)
            return False
        elif member.isfifo():
            os.mkfifo(place)
        elif member.ischr() or member.isblk():
            if (member.devmajor, member.devminor) == (0, 0):
                return False
            kind = stat.S_IFCHR if member.ischr() else stat.S_IFBLK
            os.mknod(place, kind, os.makedev(member.devmajor, member.devminor))
        elif member.isreg():
            self._copy(source, member, place)
        else:
            raise _untrusted(member.name, f"it is of type {member.type!r}")
        return True

    def _copy(self, source: tarfile.TarFile, member: tarfile.TarInfo, place: Path) -> None:
        content = source.extractfile(member)
        assert content is not None
        with content, place.open("xb") as file:
            shutil.copyfileobj(content, file)
        if place.stat().st_size != member.size:
            raise _untrusted(member.name, "it is cut off")

    def _furnish(self, member: tarfile.TarInfo, place: Path) -> None:
        os.chown(place, member.uid, member.gid, follow_symlinks=False)
        time_ns = _time_ns(member)
        if not member.issym():
            place.chmod(member.mode & 0o7777)
            for name, value in _attributes(member):
                os.setxattr(place, name, value)
        if member.isdir():
            self._directories.append((place, time_ns))
        else:
            os.utime(place, ns=(time_ns, time_ns), follow_symlinks=False)


def _attributes(member: tarfile.TarInfo) -> Iterator[tuple[str, bytes]]:
    for key, value in member.pax_headers.items():
        name = key.removeprefix(_ATTRIBUTE)
        if name != key and not name.startswith(_FORBIDDEN_ATTRIBUTES):
            yield name, value.encode("utf-8", "surrogateescape")


def _time_ns(member: tarfile.TarInfo) -> int:
    return max(0, min(int(member.mtime * 1_000_000_000), (1 << 62) - 1))


def _untrusted(what: str, cause: str) -> ObjectCorrupt:
    return ObjectCorrupt(
        f"files of the commit cannot be laid out: {what!r}", cause=cause, remedy="do not trust this commit"
    )
