"""Layers laid out as directories, so that a branch's overlay can read them. Made once per layer, read by many.

A laid-out layer is written under another name and renamed when it is whole, so it is either there or not. It is not synced
to disk, so one from before the last boot of the machine may hold anything; such ones are removed.

What lies there is looked at before each use, by the seal that was made with it (``layer_checksums``): what was changed since is
laid out anew, under the same name, and what was there stays beside it as long as a branch may have it mounted.

    NAME/tree/   what is given out
    NAME/seal    what it has to be
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
import stat
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

from relive.errors import ObjectCorrupt
from relive.model.commit import EntryKind, FileEntry, Layer
from relive.store.layer_checksums import is_as_sealed, seal
from relive.store.objects import hash_bytes

__all__ = ["LayerCache", "all_mounts", "materialize_layer"]

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_TREE, _SEAL = "tree", "seal"
_DAMAGED = ".damaged-"
_ASKED_LATELY = 600.0  # [s] so long nobody has to have mounted what was laid out
_OPAQUE = "trusted.overlay.opaque"
_OVERLAY_PREFIX = "trusted.overlay."  # attributes by which overlayfs is told to look elsewhere


def all_mounts() -> str:
    """The tables of mounts of all mount namespaces in which a process lives, one behind the other."""
    seen: set[str] = set()
    found: list[str] = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            namespace = os.readlink(process / "ns/mnt")
            if namespace not in seen:
                found.append((process / "mountinfo").read_text(errors="surrogateescape"))
                seen.add(namespace)
    return "\n".join(found)


class LayerCache:
    """The directory of laid-out layers."""

    def __init__(self, directory: Path, write: Callable[[str, Path], None]) -> None:
        """``write`` makes a new file with the content of a name, checked."""
        boot = _BOOT_ID.read_text().strip()
        self._directory = directory / boot
        self._write = write
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            if error.errno != errno.EROFS:  # after a boot there is none yet, and who only reads needs none
                raise
        for path in directory.iterdir():
            if path.name != boot:
                shutil.rmtree(path, ignore_errors=True)

    def get(self, layer: Layer) -> Path:
        """A directory that holds exactly the layer; must not be written to.

        Raises:
            ObjectMissing, ObjectCorrupt: a file's content is gone or damaged.
            OSError: the disk is full.
        """
        name = hash_bytes(layer.model_dump_json().encode())
        return self.made(name, lambda fresh: materialize_layer(layer, fresh, self._write))

    def made(self, name: str, make: Callable[[Path], None]) -> Path:
        """The directory of that name, which ``make`` fills the first time; must not be written to.

        Args:
            name: a hash of all that decides what is in it.
            make: fills an empty directory; what it raises comes out, and nothing is left.
        """
        target = self._directory / name
        with self._locked(fcntl.LOCK_SH):
            if target.exists() and is_as_sealed(target / _TREE, target / _SEAL):
                target.chmod(target.stat().st_mode)  # its change time says when it was asked for last
                return target / _TREE
        self._put_aside(name)
        fresh = Path(tempfile.mkdtemp(prefix=".making-", dir=self._directory))
        fresh.chmod(0o755)  # a branch's users walk through it
        try:
            (fresh / _TREE).mkdir()
            make(fresh / _TREE)
            seal(fresh / _TREE, fresh / _SEAL)
            fresh.rename(target)
        except FileExistsError:
            shutil.rmtree(fresh)
        except OSError:
            shutil.rmtree(fresh, ignore_errors=True)
            if not target.exists():  # another process may have finished it first (ENOTEMPTY)
                raise
        except BaseException:
            shutil.rmtree(fresh, ignore_errors=True)
            raise
        return target / _TREE

    def _put_aside(self, name: str, *, every_byte: bool = False) -> None:
        """Make room for one that is whole; a branch may still read what was there."""
        with self._locked(fcntl.LOCK_EX):
            target = self._directory / name
            # Another process may have been quicker.
            if target.exists() and not is_as_sealed(target / _TREE, target / _SEAL, every_byte=every_byte):
                target.rename(self._directory / f"{name}{_DAMAGED}{uuid.uuid4().hex}")

    def damaged(self) -> list[str]:
        """The names of those that are not as they were made; every byte is read."""
        found = []
        for path in sorted(self._entries()):
            if path.name.startswith(".making-") or _DAMAGED in path.name:
                continue
            if not is_as_sealed(path / _TREE, path / _SEAL, every_byte=True):
                found.append(path.name)
        return found

    def drop_damaged(self) -> list[str]:
        """Put aside what is damaged, so that it is laid out anew when it is asked for; returns the names."""
        found = self.damaged()
        for name in found:
            self._put_aside(name, every_byte=True)
        return found

    def clear(self) -> None:
        """Delete all laid-out layers; for when no branch lives."""
        for path in self._entries():
            shutil.rmtree(path, ignore_errors=True)

    def drop_unused(self, mounts: Callable[[], str] = all_mounts) -> None:
        """Delete what no mount has and nobody asked for lately.

        Args:
            mounts: what is mounted anywhere, as text.
        """
        oldest = time.time() - _ASKED_LATELY
        old = [path for path in self._entries() if path.stat().st_ctime < oldest]
        if not old:
            return
        mounted = mounts()
        for path in old:
            if path.name.partition(_DAMAGED)[0] in mounted:
                continue
            doomed = self._directory / f".making-{uuid.uuid4().hex}"
            with self._locked(fcntl.LOCK_EX), contextlib.suppress(FileNotFoundError):
                if path.stat().st_ctime < oldest:
                    path.rename(doomed)
            shutil.rmtree(doomed, ignore_errors=True)

    def _entries(self) -> list[Path]:
        return list(self._directory.iterdir()) if self._directory.is_dir() else []

    @contextlib.contextmanager
    def _locked(self, how: int) -> Iterator[None]:
        descriptor = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(descriptor, how)
            yield
        finally:
            os.close(descriptor)


def materialize_layer(layer: Layer, directory: Path, write: Callable[[str, Path], None]) -> None:
    """Make the layer's entries below an existing directory.

    Modification times of directories are set last, since making their entries changes them.

    Args:
        write: makes a new file with the content of a name, checked.

    Raises:
        ObjectMissing, ObjectCorrupt: a file's content is gone or damaged, or the layer is none that a capture makes.
        OSError: the disk is full.
    """
    directory.chmod(0o755)
    for entry in layer.entries:
        try:
            _make(entry, _safe_path(directory, entry.path), write)
        except (ValueError, OverflowError) as error:
            raise _untrusted(entry.path, str(error)) from error
    for entry in reversed(layer.entries):
        if entry.kind is EntryKind.DIRECTORY:
            os.utime(directory / entry.path, ns=(entry.mtime_ns, entry.mtime_ns))


def _safe_path(directory: Path, path: str) -> Path:
    """A manifest from elsewhere must not write outside of the directory."""
    parts = Path(path).parts
    if not parts or path.startswith("/") or ".." in parts:
        raise _untrusted(path, "such a path leads out of the layer")
    target = directory / path
    for parent in target.parents:
        if parent == directory:
            break
        if parent.is_symlink():
            raise _untrusted(path, "it lies below a symbolic link")
    if os.path.lexists(target):
        raise _untrusted(path, "it is there already, and writing through a link would lead out of the layer")
    return target


def _untrusted(path: str, cause: str) -> ObjectCorrupt:
    return ObjectCorrupt(f"the commit names a file {path!r}", cause=cause, remedy="do not trust this commit")


def _make(entry: FileEntry, path: Path, write: Callable[[str, Path], None]) -> None:
    match entry.kind:
        case EntryKind.DIRECTORY:
            path.mkdir()
            if entry.opaque:
                os.setxattr(path, _OPAQUE, b"y")
        case EntryKind.FILE:
            if entry.object is None:
                raise ValueError("it is a file without content")
            write(entry.object, path)
        case EntryKind.LINK:
            path.symlink_to(entry.link or "")
        case EntryKind.WHITEOUT:
            os.mknod(path, stat.S_IFCHR, os.makedev(0, 0))
        case EntryKind.PIPE:
            os.mkfifo(path)
        case EntryKind.SOCKET:
            os.mknod(path, stat.S_IFSOCK | 0o600)
    os.chown(path, entry.uid, entry.gid, follow_symlinks=False)
    if entry.kind is not EntryKind.LINK:
        path.chmod(entry.mode)
        for name, value in entry.attributes.items():
            if name.startswith(_OVERLAY_PREFIX):
                raise ValueError(f"the attribute {name!r} is overlayfs's own")
            os.setxattr(path, name, bytes.fromhex(value))
    os.utime(path, ns=(entry.mtime_ns, entry.mtime_ns), follow_symlinks=False)
