"""A commit that is taken and not yet durable: what ``capture`` returns, and how it becomes one of the store's commits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from relive.checkpoint.archive_members import store_members
from relive.checkpoint.copied_ahead import CopiedAhead
from relive.checkpoint.file_entries import with_content
from relive.checkpoint.file_layers import CapturedFile, EntrySource, ScannedEntry
from relive.checkpoint.open_files import OpenFiles
from relive.checkpoint.target import Target, host_facts
from relive.errors import ReliveError, StoreError
from relive.images import criu_images_pb2 as pb
from relive.images.cgroups import inherit_groups
from relive.images.processes import read_processes
from relive.images.sockets import read_connections, read_files, read_listening, read_outlets, summarise
from relive.kernel.disk_errors import disk_errors
from relive.model.advance import Advance
from relive.model.commit import (
    MANIFEST_VERSION,
    CommitId,
    Cursor,
    Layer,
    LayerKind,
    Manifest,
    Outlet,
    TargetFacts,
    Trigger,
)
from relive.store import IngestedImages, Staging, Store, StoredCommit, WrittenCommit
from relive.store.held_images import HeldImages
from relive.store.scattered import ScatteredPages

__all__ = ["Capture"]

_ROOT = "/"


@dataclass(slots=True)
class Capture:
    """A commit that is taken but not yet durable. Call ``store``, or ``write`` and then ``discard``, from any thread.

    Attributes:
        name: random; the recording's commit-taken event and the manifest both hold it.
        command: the target's command line, without the secrets on it.
        pause_us: microseconds the target stood still.
        is_micro: it was taken on top of the one before.
        full_because: why it is a full commit, though micro-commits are asked for; None: it is none, or they are not.
        written_pages: so many of its pages are write-protected since; 0 where it is not tracked.
        advance: is told how far storing it is.
        memory: copies of pages that the images lack as yet; None where they lack none.
        held: the images, where they are not in the staging directory.
        files: what ``files.img`` holds; None: it is to be read.
        host_name: what the target takes for its host's name; None: this one's.
    """

    name: str
    target: Target
    command: list[str]
    trigger: Trigger
    began_monotonic_ns: int
    taken_wall_ns: int
    taken_monotonic_ns: int
    cursor: Cursor | None
    staging: Staging
    layers: list[tuple[EntrySource, list[ScannedEntry]]]
    criu: str
    root_inside: int
    open_files: OpenFiles | None = None
    terminals: list[str] = field(default_factory=list)
    stopped: tuple[int | None, int, int] | None = None
    pause_us: int = 0
    is_micro: bool = False
    full_because: str | None = None
    written_pages: int = 0
    advance: Advance = field(default_factory=Advance)
    memory: CopiedAhead | None = None
    held: HeldImages | None = None
    files: list[pb.FileEntry] | None = None
    host_name: str | None = None
    _scattered: Mapping[str, ScatteredPages] = field(default_factory=dict)
    _moved: set[int] = field(default_factory=set)  # ids of what is in ``layers``

    def discard(self) -> None:
        """Throw it away, or what is left of it after it was stored."""
        if self.memory is not None:
            self.memory.discard()
        self.held = None
        self.staging.discard()
        for source, entries in self.layers:
            lost = [content for _, content in entries if content is not None and content.object is None]
            if lost:
                source.forget(lost)

    def roll_back(self, failure: ReliveError) -> None:
        """It was not stored: what it brought is nowhere, and another commit that was taken meanwhile may count on it."""
        for source, entries in self.layers:
            brought = [content for _, content in entries if content is not None]
            moved = [content for content in brought if id(content) in self._moved]
            for content in moved:
                content.object = None
            source.forget(moved)
            for content in brought:
                if content.object is None:
                    content.failure = failure

    def write(self, store: Store, parents: list[CommitId]) -> WrittenCommit:
        """Write all of it, within ``Store.taking_in``; it is durable when that is published (``Store.publish``).

        Whatever happens, ``discard`` is to follow, and ``roll_back`` where it is not stored after all.

        Raises:
            DiskFull, StoreError: it could not be written; nothing that was there before is touched.
        """
        if self.memory is not None:
            with disk_errors("putting together the pages of a commit", self.staging.directory):
                self._scattered = self.memory.merge(self.staging.images)
        manifest, taken = self._manifest(store, parents)
        return store.write(manifest, taken, began_monotonic_ns=self.began_monotonic_ns)

    def store(self, store: Store, parents: list[CommitId]) -> StoredCommit:
        """Make it durable; the staging directory is gone afterwards, whatever happens.

        Raises:
            DiskFull, StoreError: it could not be stored; nothing that was there before is touched.
        """
        try:
            with store.taking_in(parents[0] if parents else None, self.advance):
                (stored,) = store.publish([self.write(store, parents)])
                return stored
        except ReliveError as error:
            self.roll_back(error)
            raise
        finally:
            self.discard()

    def _manifest(self, store: Store, parents: list[CommitId]) -> tuple[Manifest, IngestedImages]:
        images = self.held or self.staging.images
        if self.target.contained is not None:
            inherit_groups(self.staging.images)
        files = self.files if self.files is not None else read_files(images)
        ends = [one for one in files if not one.HasField("reg")]  # most are regular files, which lead nowhere
        listening = read_listening(ends)
        connections = summarise(read_connections(images, ends), listening)
        outlets = read_outlets(ends) + [Outlet(key=key, writable=True) for key in self.terminals]
        processes = read_processes(images)
        layers = self._store_layers(store)
        contained = self.target.contained
        if contained is not None:
            layers = [store_members(store, self.staging.files, contained, layers), *layers]
        taken = store.ingest_images(images, scattered=self._scattered)
        manifest = Manifest(
            version=MANIFEST_VERSION,
            capture=self.name,
            target=TargetFacts(
                kind=self.target.kind,
                name=self.target.name,
                life=self.target.life,
                root=self.root_inside,
                command=self.command,
                processes=processes,
            ),
            host=host_facts(self.criu, self.host_name),
            trigger=self.trigger,
            taken_wall_ns=self.taken_wall_ns,
            taken_monotonic_ns=self.taken_monotonic_ns,
            pause_us=self.pause_us,
            parents=parents,
            cursor=self.cursor,
            images=taken.images,
            layers=layers,
            connections=connections,
            listening=listening,
            outlets=outlets,
            stopped_by=self.stopped[0] if self.stopped else None,
            stopped_pid=self.stopped[1] if self.stopped else None,
            stopped_thread=self.stopped[2] if self.stopped else None,
            container=contained.facts if contained is not None else None,
        )
        return manifest, taken

    def _store_content(self, store: Store, source: EntrySource, path: str, content: CapturedFile) -> str:
        if content.object is None and content.copy is not None and content.copy.exists():
            content.object = store.ingest_file(content.copy, (source.point, path), content.part)
            content.copy = content.part = None
            self._moved.add(id(content))
        if content.object is None or not store.has_object(content.object):
            source.forget([content])
            raise _lost(f"{source.point.rstrip('/')}/{path}", content.failure)
        return content.object

    def _store_layers(self, store: Store) -> list[Layer]:
        layers = []
        for source, scanned in self.layers:
            stored = []
            storing = self.advance.begin("storing files", len(scanned))
            for entry, content in scanned:
                if content is None:
                    stored.append(entry)
                    continue
                name = self._store_content(store, source, entry.path, content)
                storing.step()
                stored.append(with_content(entry, name))
            left_out = source.left_out
            layers.append(Layer(point=source.point, kind=source.kind, entries=stored, left_out=left_out))
        if self.open_files is not None and self.open_files.entries:
            opened = []
            for path, entry in sorted(self.open_files.entries.items()):
                copy = self.open_files.copies.get(path)
                found = None if copy is None else store.ingest_file(copy, (_ROOT, path))
                opened.append(entry.model_copy(update={"object": found}))
            left_out = self.open_files.left_out
            layers.append(Layer(point=_ROOT, kind=LayerKind.OVERLAY, entries=opened, left_out=left_out))
        return layers


def _lost(path: str, failure: ReliveError | None) -> ReliveError:
    """The root of it, where that is known: a full disk is to be called a full disk."""
    if failure is not None:
        return type(failure)(failure.message, cause=failure.cause, remedy=failure.remedy)
    return StoreError(
        f"a copy of {path} is lost",
        cause="the commit before this one could not be stored",
        remedy="commit again",
    )
