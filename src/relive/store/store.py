"""The store: takes commits in, gives them back, names them.

A commit becomes durable in this order, so that a crash at any point leaves a readable store: its objects, its manifest,
its line in the index. It is dropped in the order manifest, objects, line. So the manifests say which commits there are,
and who opens the store brings an index into line with them that a crash left behind. What a crash leaves in ``incoming/``
is removed then, too.

Taking in holds the store's lock shared, dropping holds it alone. Objects are put there before the lock is taken, so another
process may drop one that the new commit shares; ``add`` looks whether all are there before it says anything is durable.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import sqlite3
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import msgpack

from relive.errors import (
    ObjectCorrupt,
    ObjectMissing,
    RefAmbiguous,
    RefUnknown,
    StoreVersionUnknown,
    UsageError,
)
from relive.model.commit import CommitId, FileEntry, ImageFile, Layer, Manifest
from relive.store.index import Index, StoredCommit, objects_of
from relive.store.names import AtTime, Back, Name, parse_reference
from relive.store.objects import Objects, hash_bytes, is_id, sync_directory
from relive.store.trees import Trees
from relive.store.troubles import disk_errors

__all__ = ["Staging", "Store", "StoredCommit", "disk_errors"]

FORMAT_VERSION = 1
_BUNDLE = "bundle"
_FORBIDDEN_IN_TAGS = set("@{}/\\~^:")
_TAG_LENGTH = 200  # [bytes] a file name may have 255
_LEFT_OVER_AGE = 10.0  # [s] what is younger may belong to a process that has not locked it yet


class Staging:
    """A directory in which one commit is put together; held locked so that no other process cleans it up."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.images = directory / "images"
        self.files = directory / "files"
        self.images.mkdir(parents=True)
        self.files.mkdir()
        self._lock: int | None = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        fcntl.flock(self._lock, fcntl.LOCK_EX)

    def discard(self) -> None:
        """Remove what is left of it. Doing it twice is no error."""
        lock, self._lock = self._lock, None
        if lock is not None:
            os.close(lock)
        shutil.rmtree(self.directory, ignore_errors=True)


class Store:
    """Open one per thread; processes may open the same directory at once."""

    def __init__(self, directory: Path) -> None:
        """Open the store, making it when there is none.

        Raises:
            StoreVersionUnknown: a newer Relive wrote it.
            DiskFull, StoreError: it cannot be made.
        """
        self._directory = directory
        self._manifests = directory / "manifests"
        self._incoming = directory / "incoming"
        self._brought: set[str] | None = None
        with disk_errors("opening the store", directory):
            directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._check_format()
            for path in (self._incoming, self._manifests, directory / "tags"):
                path.mkdir(exist_ok=True)
            self._objects = Objects(directory / "objects")
            self._trees = Trees(directory / "trees", self._objects)
            self._index = self._open_index()
            try:
                self._sweep_incoming()
                self._follow_manifests_unless_busy()
            except BaseException:
                self._index.close()
                raise

    def close(self) -> None:
        """Close the index."""
        self._index.close()

    def _check_format(self) -> None:
        path = self._directory / "format"
        if not path.exists():
            self._incoming.mkdir(exist_ok=True)
            self._write_whole(path, json.dumps({"version": FORMAT_VERSION}).encode())
        try:
            version = json.loads(path.read_bytes())["version"]
        except (ValueError, KeyError, TypeError):
            version = None
        if version != FORMAT_VERSION:
            raise StoreVersionUnknown(
                f"the store {self._directory} has format {version}",
                cause=f"this Relive reads format {FORMAT_VERSION}",
                remedy="use the Relive that wrote it, or another RELIVE_HOME",
            )

    def _open_index(self) -> Index:
        path = self._directory / "index.sqlite"
        if path.exists():
            with contextlib.suppress(sqlite3.DatabaseError):
                return Index(path)
        # Alone: SQLite does not wait when several processes give a fresh file its journal mode at once.
        with self._locked(shared=False):
            try:
                return Index(path)
            except sqlite3.OperationalError:
                raise  # the file is not to blame: disk full, no right to write
            except sqlite3.DatabaseError:
                for part in self._directory.glob("index.sqlite*"):
                    part.unlink(missing_ok=True)
                return Index(path)

    def _sweep_incoming(self) -> None:
        for path in self._incoming.iterdir():
            with contextlib.suppress(OSError):
                lock = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    if time.time() - path.stat().st_mtime <= _LEFT_OVER_AGE:
                        continue
                    if path.is_dir():
                        shutil.rmtree(path, ignore_errors=True)
                    else:
                        path.unlink()
                finally:
                    os.close(lock)

    def _follow_manifests_unless_busy(self) -> None:
        # Who holds the lock lives and finishes its work; a stopped one must not keep others from reading.
        with contextlib.suppress(BlockingIOError), self._locked(shared=False, wait=False):
            self._follow_manifests()

    def _follow_manifests(self) -> int:
        """Bring the index into line with the manifests; call it with the store locked alone. Returns lines added."""
        there = {CommitId(path.stem) for path in self._manifests.glob("*.json")}
        known = self._index.ids()
        for commit_id in known - there:
            self._drop(commit_id)
        count = 0
        for commit_id in sorted(there - known):
            with contextlib.suppress(ObjectCorrupt):
                manifest = self.manifest(commit_id)
                self._index.add(commit_id, manifest, durable_us=None, size=_size_of(manifest), new_bytes=0)
                count += 1
        return count

    # -- taking in -----------------------------------------------------------------------------------------------

    def stage(self) -> Staging:
        """Begin a commit."""
        with disk_errors("beginning a commit", self._directory):
            return Staging(self._incoming / uuid.uuid4().hex)

    @contextlib.contextmanager
    def taking_in(self) -> Iterator[None]:
        """Around all that one commit takes in, its ``add`` included: should it fail, what only it brought is removed."""
        self._brought = set()
        try:
            yield
        except BaseException:
            # The first error is the one to be told.
            with contextlib.suppress(OSError, sqlite3.Error), self._locked(shared=False):
                for name in self._brought:
                    if not self._index.is_used(name):
                        self._objects.delete(name)
            raise
        finally:
            self._brought = None

    def take_file(self, file: Path) -> str:
        """Move a staged file in as an object, durable on return."""
        with disk_errors("storing a file", self._directory):
            return self._take(file)

    def _take(self, file: Path) -> str:
        name = self._objects.take(file)
        if self._brought is not None:
            self._brought.add(name)
        return name

    def take_images(self, directory: Path) -> list[ImageFile]:
        """Move CRIU's image files in: page files each as an object, the many small ones together as one.

        The bundle is msgpack: a map from file name to bytes, names in order.
        """
        with disk_errors("storing the memory images", self._directory):
            images, small = [], {}
            for path in sorted(directory.iterdir()):
                if path.name.startswith("pages-"):
                    size = path.stat().st_size
                    images.append(ImageFile(name=path.name, size=size, object=self._take(path)))
                elif path.suffix == ".img":
                    small[path.name] = path.read_bytes()
            bundle = directory / _BUNDLE
            bundle.write_bytes(msgpack.packb(small))
            size = bundle.stat().st_size
            images.append(ImageFile(name=_BUNDLE, size=size, object=self._take(bundle)))
            return images

    def add(
        self, manifest: Manifest, *, began_monotonic_ns: int | None = None, new_bytes: int = 0
    ) -> StoredCommit:
        """Make a commit durable, all of whose objects are in the store already.

        Args:
            began_monotonic_ns: when the commit was asked for; its distance to now is the durable time.
            new_bytes: bytes of objects that were not there before.

        Raises:
            DiskFull, StoreError: it could not be written; the store is as it was.
            ObjectMissing: another process has dropped an object that the commit shares with an older one.
        """
        data = canonical(manifest)
        commit_id = CommitId(hash_bytes(data))
        path = self._manifests / f"{commit_id}.json"
        with disk_errors("writing the manifest", self._directory), self._locked(shared=True):
            missing = self.missing_objects(manifest)
            if missing:
                raise ObjectMissing(
                    f"{len(missing)} objects of the commit are gone",
                    cause="the last other commit that used them was dropped meanwhile",
                    remedy="commit again",
                )
            is_new = not path.exists()
            self._write_whole(path, data)
            durable_us = (
                (time.monotonic_ns() - began_monotonic_ns) // 1000 if began_monotonic_ns is not None else None
            )
            try:
                self._index.add(
                    commit_id, manifest, durable_us=durable_us, size=_size_of(manifest), new_bytes=new_bytes
                )
                stored = self._index.get(commit_id)
            except BaseException:
                if is_new:
                    path.unlink()
                raise
        assert stored is not None
        return stored

    def has_object(self, name: str) -> bool:
        """The object is in the store (its content is not checked)."""
        return self._objects.path(name).exists()

    def _write_whole(self, path: Path, data: bytes) -> None:
        """Put a file there whole or not at all, durable on return."""
        fresh = self._incoming / f"{path.name}.{uuid.uuid4().hex}"
        try:
            descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                fcntl.flock(file, fcntl.LOCK_EX)  # not left over, however long this takes
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
                fresh.replace(path)
        except BaseException:
            fresh.unlink(missing_ok=True)
            raise
        sync_directory(path.parent)

    @contextlib.contextmanager
    def _locked(self, *, shared: bool, wait: bool = True) -> Iterator[None]:
        """Hold the store's lock; raises BlockingIOError when it is taken and not to be waited for."""
        descriptor = os.open(self._directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
            fcntl.flock(descriptor, kind if wait else kind | fcntl.LOCK_NB)
            yield
        finally:
            os.close(descriptor)

    # -- giving back ---------------------------------------------------------------------------------------------

    def manifest(self, commit_id: CommitId) -> Manifest:
        """The manifest, checked against its id.

        Raises:
            RefUnknown: there is none.
            ObjectCorrupt: it has changed, or is no manifest.
        """
        with disk_errors("reading a manifest", self._directory):
            try:
                data = (self._manifests / f"{commit_id}.json").read_bytes()
            except FileNotFoundError:
                raise _unknown(commit_id) from None
        if hash_bytes(data) != commit_id:
            raise ObjectCorrupt(
                f"the manifest of {commit_id[:10]} is damaged",
                cause="its bytes do not match its id",
                remedy="use another commit (`relive log`)",
            )
        try:
            return Manifest.model_validate_json(data)
        except ValueError as error:
            raise ObjectCorrupt(
                f"the manifest of {commit_id[:10]} cannot be read",
                cause=str(error).splitlines()[0],
                remedy="use the Relive that wrote it",
            ) from error

    def lay_out_images(self, manifest: Manifest, directory: Path) -> None:
        """Put the image files into ``directory`` (of the same file system), checked; page files as links to the objects.

        Raises:
            ObjectMissing, ObjectCorrupt: an image is gone or damaged; the directory is then of no use.
        """
        with disk_errors("laying out images", self._directory):
            for image in manifest.images:
                source = self._objects.verified(image.object)
                if image.name != _BUNDLE:
                    os.link(source, directory / _plain(image.name))
                    continue
                for name, data in _read_bundle(source).items():
                    # A new file: were it a link to a page file, writing would change the object itself.
                    with (directory / _plain(name)).open("xb") as file:
                        file.write(data)

    def lay_out_layer(self, layer: Layer) -> Path:
        """A directory with the layer's files, for reading only."""
        with disk_errors("laying out files", self._directory):
            return self._trees.get(layer)

    def content(self, entry: FileEntry) -> bytes:
        """The bytes of a committed file."""
        assert entry.object is not None
        with disk_errors("reading a file", self._directory):
            return self._objects.verified(entry.object).read_bytes()

    # -- names ---------------------------------------------------------------------------------------------------

    def resolve(self, text: str) -> CommitId:
        """The commit that a reference names (see ``names``).

        Raises:
            RefUnknown: none; RefAmbiguous: an id prefix fits several.
        """
        reference = parse_reference(text, now_ns=time.time_ns())
        with disk_errors("looking up a name", self._directory):
            match reference:
                case Back(name, count):
                    commits = self._index.newest_first(name, count + 1)
                    if len(commits) > count:
                        return commits[count].id
                case AtTime(name, wall_ns):
                    commit = self._index.newest_before(name, wall_ns)
                    if commit is not None:
                        return commit.id
                case Name():
                    found = self._resolve_name(reference)
                    if found is not None:
                        return found
        raise _unknown(text)

    def _resolve_name(self, reference: Name) -> CommitId | None:
        if _can_be_tag(reference.text):
            with contextlib.suppress(FileNotFoundError):
                return self._read_tag(reference.text)
        if reference.is_prefix:
            ids = self._index.by_prefix(reference.text)
            if len(ids) > 1:
                raise RefAmbiguous(
                    f"{reference.text!r} fits several commits",
                    cause=", ".join(i[:12] for i in ids),
                    remedy="give more digits",
                )
            if ids:
                return ids[0]
        newest = self._index.newest_first(reference.text, 1)
        return newest[0].id if newest else None

    def _tag_path(self, name: str) -> Path:
        return self._directory / "tags" / name

    def _read_tag(self, name: str) -> CommitId:
        text = self._tag_path(name).read_text(errors="replace").strip()
        if not is_id(text):
            raise ObjectCorrupt(
                f"the tag {name!r} is damaged",
                cause="it holds no commit's id",
                remedy="remove it with `relive tag --delete` and set it again",
            )
        return CommitId(text)

    def tag(self, name: str, commit_id: CommitId, *, force: bool = False) -> None:
        """Give a commit a name that keeps it.

        Raises:
            UsageError: the name is not allowed, or taken and ``force`` is not given.
            RefUnknown: there is no such commit (any more).
        """
        if not _can_be_tag(name):
            raise UsageError(
                f"{name!r} cannot be a tag",
                cause=f"blanks and any of @{{}}/\\~^: are not allowed, nor a dot in front, nor over {_TAG_LENGTH} bytes",
            )
        path = self._tag_path(name)
        with disk_errors("writing a tag", self._directory), self._locked(shared=True):
            if self._index.get(commit_id) is None:
                raise _unknown(commit_id)
            if path.exists() and not force:
                raise UsageError(
                    f"the tag {name!r} exists",
                    cause=f"it names {path.read_text(errors='replace')[:10]}",
                    remedy="use --force to move it",
                )
            self._write_whole(path, commit_id.encode())

    def untag(self, name: str) -> None:
        """Remove a tag; raises RefUnknown when there is none."""
        with disk_errors("removing a tag", self._directory):
            try:
                if not _can_be_tag(name):
                    raise _unknown(name)
                self._tag_path(name).unlink()
            except FileNotFoundError:
                raise _unknown(name) from None

    def tags(self) -> dict[str, CommitId]:
        """All tags in order of their names; damaged ones are passed over."""
        found = {}
        with disk_errors("reading the tags", self._directory):
            for name in sorted(os.listdir(self._directory / "tags")):
                with contextlib.suppress(FileNotFoundError, ObjectCorrupt):
                    found[name] = self._read_tag(name)
        return found

    # -- listing, thinning ---------------------------------------------------------------------------------------

    def get(self, commit_id: CommitId) -> StoredCommit:
        """The index line of a commit; raises RefUnknown."""
        with disk_errors("reading the index", self._directory):
            commit = self._index.get(commit_id)
        if commit is None:
            raise _unknown(commit_id)
        return commit

    def log(self, name: str | None = None, limit: int = -1) -> list[StoredCommit]:
        """Commits, newest first, of one target or all."""
        with disk_errors("reading the index", self._directory):
            return self._index.newest_first(name, limit)

    def before_event(self, life: str, sequence: int) -> StoredCommit | None:
        """The newest commit of a life taken before an event of its recording."""
        with disk_errors("reading the index", self._directory):
            return self._index.before_sequence(life, sequence)

    def latest_of_life(self, life: str) -> StoredCommit | None:
        """The newest commit of a life."""
        with disk_errors("reading the index", self._directory):
            return self._index.latest_of_life(life)

    def delete(self, commit_id: CommitId) -> int:
        """Drop a commit and the objects only it used; returns the bytes freed. Tags are the caller's to check."""
        with disk_errors("dropping a commit", self._directory), self._locked(shared=False):
            self._follow_manifests()
            return self._drop(commit_id)

    def _drop(self, commit_id: CommitId) -> int:
        (self._manifests / f"{commit_id}.json").unlink(missing_ok=True)
        sync_directory(self._manifests)  # before its objects: a manifest that comes back must be whole
        freed = sum(self._objects.delete(name) for name in self._index.used_only_by(commit_id))
        self._index.remove(commit_id)
        return freed

    def thin(self, name: str, keep: int, pinned: set[CommitId]) -> list[CommitId]:
        """Drop a target's commits beyond the newest ``keep`` that have no tag and are not pinned; returns their ids."""
        with disk_errors("dropping old commits", self._directory), self._locked(shared=False):
            self._follow_manifests()
            kept = pinned | set(self.tags().values())
            doomed = [commit.id for commit in self.log(name)[keep:] if commit.id not in kept]
            for commit_id in reversed(doomed):  # the oldest first, so that a reader never sees a gap
                self._drop(commit_id)
        return doomed

    def rebuild_index(self) -> int:
        """Make the index anew from the manifests; returns how many were readable. Damaged manifests are passed over."""
        with disk_errors("making the index anew", self._directory), self._locked(shared=False):
            self._index.clear()
            return self._follow_manifests()

    def missing_objects(self, manifest: Manifest) -> set[str]:
        """Objects a manifest refers to that are not in the store."""
        return {name for name in objects_of(manifest) if not self.has_object(name)}


def canonical(manifest: Manifest) -> bytes:
    """The bytes whose BLAKE3 is the commit's id: JSON, keys sorted, no blanks, UTF-8."""
    return json.dumps(
        manifest.model_dump(mode="json"), sort_keys=True, separators=(",", ":"), ensure_ascii=False
    ).encode("utf-8", "surrogateescape")


def _size_of(manifest: Manifest) -> int:
    size = sum(image.size for image in manifest.images)
    return size + sum(entry.size for layer in manifest.layers for entry in layer.entries)


def _can_be_tag(name: str) -> bool:
    return (
        name.isprintable()
        and not name.startswith(".")
        and 0 < len(name.encode(errors="replace")) <= _TAG_LENGTH
        and not any(char in _FORBIDDEN_IN_TAGS or char.isspace() for char in name)
    )


def _read_bundle(bundle: Path) -> dict[str, bytes]:
    """The many small images; raises ObjectCorrupt, since a commit may come from elsewhere."""
    try:
        found = msgpack.unpackb(bundle.read_bytes())
    except (ValueError, msgpack.exceptions.UnpackException) as error:
        raise _bad_bundle(f"{type(error).__name__}: {error}") from error
    if not isinstance(found, dict):
        raise _bad_bundle("it is no map")
    for name, data in found.items():
        if not isinstance(name, str) or not isinstance(data, bytes):
            raise _bad_bundle("it is no map from names to bytes")
    return found


def _bad_bundle(cause: str) -> ObjectCorrupt:
    return ObjectCorrupt("the commit's small images cannot be read", cause=cause, remedy="do not trust it")


def _plain(name: str) -> str:
    if "/" in name or "\0" in name or name in ("", ".", ".."):
        raise ObjectCorrupt(
            f"the commit names an image {name!r}", cause="no image is called so", remedy="do not trust it"
        )
    return name


def _unknown(text: str) -> RefUnknown:
    return RefUnknown(f"{text!r} names no commit", remedy="`relive log` lists commits, `relive tag` the tags")
