"""The store: takes commits in, gives them back, names them.

A commit becomes durable in this order, so that a crash at any point leaves a readable store: its pack, its placement, its
manifest, its line in the index. So the manifests say which commits there are, and who opens the store brings an index into line
with them that a crash left behind (``index_recovery``). ``dropping`` has the order in which a commit goes. What a crash leaves in
``incoming/`` and ``making/`` is removed when the store is opened; placements and packs that nobody needs go with the next drop.

Several commits may become durable together (``publish``): all packs and placements before the first manifest, and the manifests in
the order in which the commits go on from each other. The pack of one from which another goes on is at its place before it is
durable, as the other may read it: no placement names it until it is.

Taking in holds the store's lock shared from beginning to end, dropping holds it alone. So nothing that a new commit shares
with an older one is dropped meanwhile; ``add`` looks whether all is there all the same before it says anything is durable.

What is here is the door. Behind it are ``intake`` (one commit on its way in), ``committed_images`` and ``committed_files`` (the way
back), ``transfer`` (from and to other stores), ``index`` (lists), ``lookup`` (names), ``dropping``.
"""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from relive.config import given_store_keys
from relive.errors import ObjectCorrupt, RefUnknown
from relive.kernel.disk_errors import disk_errors
from relive.model.advance import Advance
from relive.model.commit import CommitId, Manifest
from relive.store.commitquery import CommitQuery
from relive.store.committed_files import CommittedFiles
from relive.store.committed_images import CommittedImages
from relive.store.dropping import Dropping
from relive.store.format import StoreFormat
from relive.store.held_images import HeldImages
from relive.store.index import StoredCommit, TargetLine
from relive.store.index_recovery import IndexRecovery, open_index
from relive.store.ingested import IngestedImages
from relive.store.intake import Intake
from relive.store.internals import StoreInternals
from relive.store.keyring import Keyring
from relive.store.lock import StoreLock
from relive.store.lookup import find_commit
from relive.store.manifests import Manifests, unknown
from relive.store.names import parse_reference
from relive.store.new_files import NewFiles
from relive.store.objects import Objects
from relive.store.pages.last_index import LastIndex
from relive.store.pages.numpy_threads import load_numpy
from relive.store.pages.packs import Packs
from relive.store.pages.placement import Placements
from relive.store.paging import Page
from relive.store.scattered import ScatteredPages
from relive.store.small_files import FilePart
from relive.store.staging import SpareStagings, Staging, sweep_left_overs
from relive.store.tags import Tags
from relive.store.transfer import Transfers
from relive.store.written_commit import WrittenCommit

if TYPE_CHECKING:
    from relive.store.pages.page_pool import PagePool

__all__ = ["Store"]

_ALL_COMMITS = CommitQuery()


class Store:
    """Open one per thread; processes may open the same directory at once."""

    def __init__(self, directory: Path, keyring: Keyring | None = None) -> None:
        """Open the store, making it when there is none. On a disk that takes no writes it is for reading: all else raises.

        Args:
            keyring: keys to sign, trust and seal with; those in ``keys`` beside the store and in the environment where none
                is given.

        Raises:
            StoreVersionUnknown: a newer Relive wrote it.
            DiskFull, HostIncapable, StoreError: it cannot be made.
        """
        self._directory = directory
        self._lock = StoreLock(directory / "lock")
        self._last_index = LastIndex()
        with disk_errors("opening the store", directory):
            self.internals = parts = _open_parts(directory, self._lock, keyring)
            self._manifests = parts.manifests
            self._tags = Tags(directory / "tags", parts.incoming)
            new_files = NewFiles(self.stage)
            self.images = CommittedImages(parts, self._last_index)
            self.files = CommittedFiles(
                parts,
                self._last_index,
                new_files,
                lambda: (line.id for line in self._index.newest_first()),
            )
            self._index = index = open_index(directory / "index.sqlite", self._lock, parts.manifests)
            self._intake = Intake(parts, index, new_files, self.files, self.stage)
            self._dropping = Dropping(parts, index, self.images, self.files)
            self._recovery = IndexRecovery(index, parts.manifests, self._lock, self._dropping.drop)
            try:
                sweep_left_overs(parts.incoming)
                self.files.drop_plain_trees()
                self._recovery.follow_unless_busy()
                self._recovery.enter_missing_words()
            except BaseException:
                index.close()
                raise

    def close(self) -> None:
        """Close the index, and give up what is held of the last commits."""
        self._index.close()
        self._intake.close()
        self.files.close()
        self.images.close()
        self._last_index.forget()

    def make_ready(self) -> None:
        """Load now what is needed for images; else the first to take some in or give them back waits for it."""
        self._intake.make_ready()
        self.images.make_ready()

    def release_memory(self) -> None:
        """Give back the memory that ``add`` left over, when nobody waits any more; without it the next commit does so."""
        self._intake.release_memory()
        self.files.release_memory()
        self._last_index.forget()
        with disk_errors("removing what was laid out", self._directory):
            self.files.drop_plain_trees()

    def release_disk(self) -> None:
        """Give back the space of unnamed files, which hold the pages that the next commit is compared with; it reads them back."""
        self._intake.release_disk()

    # -- taking in -----------------------------------------------------------------------------------------------

    def stage(self, spares: SpareStagings | None = None) -> Staging:
        """Begin a commit; ``spares``: of the target's commits before it."""
        with disk_errors("beginning a commit", self._directory):
            return Staging(self.internals.incoming / uuid.uuid4().hex, spares)

    def taking_in(
        self, parent: CommitId | None = None, advance: Advance | None = None
    ) -> contextlib.AbstractContextManager[None]:
        """Around all that one commit takes in, its ``add`` included: should it fail, what only it brought is removed.

        Args:
            parent: the commit before it of the same target, whose pages and files are likely to be the same.
            advance: is told how far it is.

        Raises:
            KeyMissing, KeyWrong: the store is sealed with a key that is not there; nothing is written.
        """
        return self._intake.taking_in(parent, advance)

    def ingest_file(
        self, file: Path, place: tuple[str, str] | None = None, part: FilePart | None = None
    ) -> str:
        """Take a staged file, which is gone from where it was on return; it is durable with ``add``.

        Args:
            place: the point of the layer and the path there that it belongs to; it is compared with what the parent has there.
            part: take this of a file of many, which stays where it is, and must until ``add`` is done.

        Returns:
            The name of its content, for the entry.
        """
        return self._intake.ingest_file(file, place, part)

    def page_pool(self) -> PagePool:
        """Where pages can wait that are to be taken in; what several commits share lies there once.

        Raises:
            ToolMissing: what hashes them is not built.
        """
        load_numpy()
        from relive.store.pages.page_pool import PagePool  # noqa: PLC0415 - it takes numpy

        return PagePool(self.internals.incoming)

    def ingest_images(
        self,
        source: Path | HeldImages,
        parent: CommitId | None = None,
        *,
        scattered: Mapping[str, ScatteredPages] | None = None,
    ) -> IngestedImages:
        """Take CRIU's images in, durable with ``add``; only within ``taking_in``. They may be removed afterwards.

        Args:
            source: a directory of files, or the images themselves. Pages in the same slot of a pool as the parent's are the same,
                and are not looked at.
            parent: as in ``taking_in``, where it was not told there.
            scattered: page files of the directory that lie elsewhere, by name; a file of that name is not read.
        """
        return self._intake.ingest_images(source, parent, scattered=scattered)

    def add(
        self,
        manifest: Manifest,
        taken: IngestedImages | None = None,
        *,
        began_monotonic_ns: int | None = None,
        new_bytes: int | None = None,
    ) -> StoredCommit:
        """Make a commit durable, all of whose files were taken or are in the store already.

        Args:
            taken: the manifest's images as they were taken in; None if it has none.
            began_monotonic_ns: when the commit was asked for; its distance to now is the durable time.
            new_bytes: what is to be said of how much the store grew; None: what it is.

        Raises:
            DiskFull, StoreError: it could not be written; the store is as it was.
            ObjectMissing: another process has dropped something that the commit shares with an older one.
        """
        return self._intake.add(manifest, taken, began_monotonic_ns=began_monotonic_ns, new_bytes=new_bytes)

    def write(
        self,
        manifest: Manifest,
        taken: IngestedImages | None = None,
        *,
        began_monotonic_ns: int | None = None,
    ) -> WrittenCommit:
        """Write a commit as ``add`` does, and do not wait for the disk: it is at its place, and durable, with ``publish``.

        Only within ``taking_in``, at whose end what was not published has to be discarded.

        Raises:
            DiskFull, StoreError, ObjectMissing: as ``add``.
        """
        return self._intake.write(manifest, taken, began_monotonic_ns)

    def go_on_from(self, commit: WrittenCommit) -> None:
        """What is taken in next is the commit after that one, which is not published yet; they are to be published together.

        Raises:
            DiskFull, StoreError: the disk takes no more.
        """
        self._intake.go_on_from(commit)

    def publish(self, commits: Sequence[WrittenCommit]) -> list[StoredCommit]:
        """Make written commits durable, all together: a crash leaves none, all, or the first ones.

        Args:
            commits: in the order in which they go on from each other.

        Raises:
            DiskFull, StoreError: as ``add``; none of them is in the store then, and they are discarded.
        """
        return self._intake.publish(commits)

    def has_object(self, name: str) -> bool:
        """The commit that is being taken in may name this content: its parent has it, or it was taken (it is not checked).

        Raises:
            DiskFull, StoreError: the parent could not be read back.
        """
        return self._intake.has_object(name)

    # -- giving back ---------------------------------------------------------------------------------------------

    def manifest(self, commit_id: CommitId) -> Manifest:
        """The manifest with its layers, checked against its id.

        Raises:
            RefUnknown: there is none.
            ObjectCorrupt: it has changed, or is no manifest.
            ObjectMissing, ObjectCorrupt, SignatureInvalid, KeyMissing, KeyWrong: the list of its files cannot be read.
        """
        with disk_errors("reading a manifest", self._directory):
            manifest = self._manifests.read(commit_id)
            if manifest.listing is None:
                return manifest
            return manifest.model_copy(update={"layers": self.files.contents.layers(manifest)})

    def facts(self, commit_id: CommitId) -> Manifest:
        """As ``manifest``, but from version 4 on without layers: so it needs no pack, and of a sealed store no key.

        Raises:
            RefUnknown: there is none.
            ObjectCorrupt: it has changed, or is no manifest.
        """
        with disk_errors("reading a manifest", self._directory):
            return self._manifests.read(commit_id)

    # -- to and from other stores --------------------------------------------------------------------------------

    @cached_property
    def transfers(self) -> Transfers:
        """Commits that leave for another store, or come from there."""
        return Transfers(self.internals, self._index, self.stage)

    # -- names ---------------------------------------------------------------------------------------------------

    def resolve(self, text: str) -> CommitId:
        """The commit that a reference names (see ``names``).

        Raises:
            RefUnknown: none; RefAmbiguous: an id prefix fits several.
        """
        reference = parse_reference(text, now_ns=time.time_ns())
        with disk_errors("looking up a name", self._directory):
            found = find_commit(reference, self._tags, self._index)
        if found is None:
            raise unknown(text)
        return found

    def tag(self, name: str, commit_id: CommitId, *, force: bool = False) -> None:
        """Give a commit a name that keeps it.

        Raises:
            UsageError: the name is not allowed, or taken and ``force`` is not given.
            RefUnknown: there is no such commit (any more).
        """
        with disk_errors("writing a tag", self._directory), self._lock.held(shared=True):
            self._tags.check_free(name, force=force)
            if self._index.get(commit_id) is None:
                raise unknown(commit_id)
            self._tags.write(name, commit_id)

    def check_tag(self, name: str, commit_id: CommitId | None, *, force: bool) -> None:
        """Raises UsageError where ``tag`` would, unless it names that commit already; None: one that is not there yet."""
        with disk_errors("reading the tags", self._directory):
            self._tags.check_free(name, force=force or self._tags.find(name) == commit_id)

    def untag(self, name: str) -> None:
        """Remove a tag; raises RefUnknown when there is none."""
        with disk_errors("removing a tag", self._directory):
            self._tags.delete(name)

    def tags(self) -> dict[str, CommitId]:
        """All tags in order of their names; damaged ones are passed over."""
        with disk_errors("reading the tags", self._directory):
            return self._tags.all()

    # -- listing, thinning ---------------------------------------------------------------------------------------

    def get(self, commit_id: CommitId) -> StoredCommit:
        """The index line of a commit; raises RefUnknown."""
        with disk_errors("reading the index", self._directory):
            commit = self._index.get(commit_id)
        if commit is None:
            raise unknown(commit_id)
        return commit

    def captured_as(self, capture: str) -> StoredCommit | None:
        """The commit that was given this name when it was taken (``Manifest.capture``), None if there is none."""
        with disk_errors("reading the index", self._directory):
            return self._index.captured_as(capture)

    def log(self, name: str | None = None, limit: int = -1) -> list[StoredCommit]:
        """Commits, newest first, of one target or all."""
        with disk_errors("reading the index", self._directory):
            return self._index.newest_first(name, limit)

    def page(
        self, query: CommitQuery = _ALL_COMMITS, *, after: str | None = None, limit: int = 50
    ) -> Page[StoredCommit]:
        """A page of the commits that fit, newest first (of those taken at the same time the greater id first).

        Pages that follow each other by their cursors hold each commit exactly once that is there all the time.

        Args:
            after: the cursor of the page before; None for the first.
            limit: at most so many; at least 1.

        Raises:
            UsageError: the cursor is none of this list, the limit too small, or the search too long.
        """
        with disk_errors("reading the index", self._directory):
            if query.tag is not None:
                found = self._tags.find(query.tag)
                tagged = [] if found is None else [found]
            else:
                tagged = list(self._tags.all().values()) if query.tagged is not None else []
            return self._index.page(query, tagged, after, limit)

    def left_out(self) -> dict[CommitId, ObjectCorrupt]:
        """Commits that no list has, since their manifests are damaged or of a newer Relive; with what is wrong."""
        with disk_errors("reading the index", self._directory):
            return self._faults(self._index.left_out(), self._manifests.read)

    def damaged(self, commits: Iterable[CommitId]) -> dict[CommitId, ObjectCorrupt]:
        """Those of them whose manifests are damaged, with what is wrong; their packs and files are not looked at."""
        return self._faults(commits, self._manifests.check)

    def _faults(
        self, commits: Iterable[CommitId], read: Callable[[CommitId], object]
    ) -> dict[CommitId, ObjectCorrupt]:
        found = {}
        with disk_errors("reading manifests", self._directory):
            for commit_id in commits:
                try:
                    read(commit_id)
                except ObjectCorrupt as error:
                    found[commit_id] = error
                except RefUnknown:  # it was dropped meanwhile
                    continue
        return found

    def targets(self) -> list[TargetLine]:
        """All targets that have commits, that of the newest commit first."""
        with disk_errors("reading the index", self._directory):
            return self._index.targets()

    def before_event(
        self,
        life: str,
        sequence: int,
        wall_ns: int | None = None,
        *,
        is_fit: Callable[[StoredCommit], bool] = lambda _commit: True,
    ) -> StoredCommit | None:
        """The newest commit of a life taken before an event of its recording.

        Args:
            wall_ns: when that was: what was taken before it counts too if nobody told then where the recording stood.
            is_fit: false for those that do not count.
        """
        with disk_errors("reading the index", self._directory):
            return self._index.before_sequence(life, sequence, wall_ns, is_fit)

    def latest_of_life(self, life: str) -> StoredCommit | None:
        """The newest commit of a life."""
        with disk_errors("reading the index", self._directory):
            return self._index.latest_of_life(life)

    def delete(self, commit_id: CommitId) -> int:
        """Drop a commit and what only it used; returns the bytes freed. Tags are the caller's to check."""
        with disk_errors("dropping a commit", self._directory), self._lock.held(shared=False):
            self._recovery.follow()
            return self._dropping.drop([commit_id])

    def thin(
        self, name: str, choose: Callable[[Sequence[StoredCommit]], Collection[CommitId]]
    ) -> list[CommitId]:
        """Drop those of a target's commits that ``choose`` names and that have no tag; returns their ids, newest first.

        Args:
            choose: is given all of them, newest first, and asked while nothing else can be dropped or added. What it
                reads to decide (incidents, say) must not change meanwhile: see ``nothing_dropped``.
        """
        with disk_errors("dropping old commits", self._directory), self._lock.held(shared=False):
            self._recovery.follow()
            lines = self.log(name)
            wanted = set(choose(lines)) - set(self.tags().values())
            doomed = [line.id for line in lines if line.id in wanted]
            self._dropping.drop(doomed[::-1])  # the oldest first, so that a reader never sees a gap
        return doomed

    @contextlib.contextmanager
    def nothing_dropped(self) -> Iterator[None]:
        """Around finding a commit and writing down that it is needed: meanwhile no process drops any."""
        with disk_errors("locking the store", self._directory), self._lock.held(shared=True):
            yield

    def rebuild_index(self) -> int:
        """Make the index anew from the manifests; returns how many were readable. Damaged manifests are passed over."""
        with disk_errors("making the index anew", self._directory), self._lock.held(shared=False):
            return self._recovery.rebuild()

    def index_faults(self, commits: Iterable[CommitId]) -> dict[str, str]:
        """Where the index does not say what the manifests of these commits say; by id, or ``index.sqlite`` for all of it.

        Lines that were found wrong, and made anew, when this store was opened are named as well.
        """
        with disk_errors("reading the index", self._directory):
            return self._recovery.faults(commits)

    def renew_derived(self) -> list[str]:
        """Make anew what is derived and wrong: laid-out layers, the index. Returns what it was, in words."""
        done = [f"laid-out layer {name[:12]}" for name in self.files.drop_damaged_trees()]
        faults = self.index_faults(self._manifests.ids())
        if faults:
            self.rebuild_index()
        return done + [f"index line of {name[:12]}" for name in faults]


def _open_parts(directory: Path, lock: StoreLock, keyring: Keyring | None) -> StoreInternals:
    """Make the directories where there are none; a newer Relive's store is refused before anything of it is written to."""
    incoming = directory / "incoming"
    keyring = keyring or Keyring(directory.parent / "keys", given_store_keys)
    form = StoreFormat(directory, incoming, keyring)
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    form.check()
    incoming.mkdir(exist_ok=True)
    return StoreInternals(
        directory=directory,
        incoming=incoming,
        lock=lock,
        format=form,
        keyring=keyring,
        manifests=Manifests(directory / "manifests", incoming),
        objects=Objects(directory / "objects"),
        packs=Packs(directory / "packs", incoming, keyring.store_key, keyring.old_store_keys),
        placements=Placements(directory / "placements", incoming, keyring),
    )
