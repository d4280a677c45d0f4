"""The store: takes commits in, gives them back, names them.

A commit becomes durable in this order, so that a crash at any point leaves a readable store: its pack, its placement, its
manifest, its line in the index. It is dropped in the order manifest, placement, packs, objects (of older commits), line. So the
manifests say which commits there are, and who opens the store brings an index into line with them that a crash left behind.
What a crash leaves in ``incoming/`` and ``making/`` is removed then, too; placements and packs that nobody needs go with the next
drop.

Taking in holds the store's lock shared from beginning to end, dropping holds it alone. So nothing that a new commit shares
with an older one is dropped meanwhile; ``add`` looks whether all is there all the same before it says anything is durable.
"""

from __future__ import annotations

import contextlib
import shutil
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from relive.config import given_store_keys
from relive.errors import ObjectCorrupt, RefUnknown, UsageError
from relive.kernel.disk_errors import disk_errors, takes_writes
from relive.model.advance import Advance
from relive.model.commit import CommitId, FileEntry, Layer, Manifest
from relive.store.commitquery import CommitQuery
from relive.store.format import StoreFormat
from relive.store.held_images import HeldImages
from relive.store.image_cache import ImageCache
from relive.store.index import StoredCommit, TargetLine
from relive.store.index_recovery import add_lines, open_index, renew_lines
from relive.store.ingested import IngestedImages
from relive.store.intake import Intake
from relive.store.internals import StoreInternals
from relive.store.keyring import Keyring
from relive.store.layer_cache import LayerCache, materialize_layer
from relive.store.lock import StoreLock
from relive.store.lookup import find_commit
from relive.store.manifests import Manifests, unknown
from relive.store.names import parse_reference
from relive.store.objects import Objects, hash_bytes
from relive.store.pages.last_index import LastIndex
from relive.store.pages.numpy_threads import load_numpy
from relive.store.pages.packs import Packs
from relive.store.pages.placement import Placements
from relive.store.paging import Page
from relive.store.scattered import ScatteredPages
from relive.store.small_files import FilePart
from relive.store.staging import SpareStagings, Staging, sweep_left_overs
from relive.store.sweep import repack_dead, sweep_packs
from relive.store.tags import Tags
from relive.store.transfer import Transfers
from relive.store.version1 import lay_out_whole_images

if TYPE_CHECKING:
    from relive.store.contents import StoredContents
    from relive.store.images import Images
    from relive.store.pages.commit_memory import CommitMemory
    from relive.store.pages.page_pool import PagePool
    from relive.store.pages.page_reader import CommitPages

__all__ = ["Store"]

_CONTENT = "content"
_WORDS_AT_ONCE = 500  # commits in one write to the index
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
        self._incoming = directory / "incoming"
        self._lock = StoreLock(directory / "lock")
        self._renewed: list[CommitId] = []
        self._keyring = keyring = keyring or Keyring(directory.parent / "keys", given_store_keys)
        self._format = StoreFormat(directory, self._incoming, keyring)
        with disk_errors("opening the store", directory):
            directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._format.check()
            self._incoming.mkdir(exist_ok=True)
            self._manifests = Manifests(directory / "manifests", self._incoming)
            self._tags = Tags(directory / "tags", self._incoming)
            self._objects = Objects(directory / "objects")
            self._packs = Packs(
                directory / "packs", self._incoming, keyring.store_key, keyring.old_store_keys
            )
            self._placements = Placements(directory / "placements", self._incoming, keyring)
            self._last_index = LastIndex()
            self._image_cache = ImageCache(directory / "laid")
            self._layer_cache = LayerCache(directory / "trees", self._write_content)
            self._index = open_index(directory / "index.sqlite", self._lock, self._manifests)
            self._intake = Intake(
                self.internals, self._index, lambda: self._images, lambda: self._contents, self.stage
            )
            try:
                sweep_left_overs(self._incoming)
                self._drop_plain_trees()
                self._follow_manifests_unless_busy()
                self._enter_missing_words()
            except BaseException:
                self._index.close()
                raise

    def close(self) -> None:
        """Close the index, and give up what is held of the last commits."""
        self._index.close()
        self._intake.new_files.clear()
        contents = self.__dict__.pop("_contents", None)
        if contents is not None:
            contents.close()
        self.__dict__.pop("_images", None)
        self._last_index.forget()

    @property
    def internals(self) -> StoreInternals:
        """What it is made of, for who works on all of it."""
        return StoreInternals(
            directory=self._directory,
            incoming=self._incoming,
            lock=self._lock,
            format=self._format,
            keyring=self._keyring,
            manifests=self._manifests,
            objects=self._objects,
            packs=self._packs,
            placements=self._placements,
        )

    @cached_property
    def _images(self) -> Images:
        # Only when pages are asked for: importing numpy takes longer than all else that `relive log` does.
        load_numpy()
        from relive.store.images import Images  # noqa: PLC0415

        return Images(self._packs, self._placements, self._image_cache, self._manifests, self._last_index)

    @cached_property
    def _contents(self) -> StoredContents:
        load_numpy()
        from relive.store.contents import StoredContents  # noqa: PLC0415 - it takes numpy

        return StoredContents(
            self._packs,
            self._last_index,
            self._placements.read,
            lambda: (line.id for line in self._index.newest_first()),
        )

    def _follow_manifests_unless_busy(self) -> None:
        self._renewed = renew_lines(self._index, self._manifests, self._index.doubtful())
        if self._index.follows(self._manifests.state()):
            return
        # Who holds the lock lives and finishes its work; a stopped one must not keep others from reading.
        # With 100,000 manifests a comparison takes a tenth of a second, which is not spent for each command while commits
        # arrive: what a crash kept out of the index may then be missed for some seconds. Who drops commits always compares.
        try:
            with self._lock.held(shared=False, wait=False):
                self._follow_manifests()
        except BlockingIOError:
            # What is on its way in gets its line from its own agent, too; what was dropped meanwhile loses it again the next time.
            add_lines(self._index, self._manifests, self._manifests.ids() - self._index.ids())

    def _follow_manifests(self) -> int:
        """Bring the index into line with the manifests; call it with the store locked alone. Returns lines added."""
        began_ns = time.thread_time_ns()  # not the time by the wall: waiting for the processor is no cost
        state = self._manifests.state()  # before they are listed
        there, known = self._manifests.ids(), self._index.ids()
        cost_ns = time.thread_time_ns() - began_ns
        if known - there:
            self._drop(sorted(known - there))
        left_out = add_lines(self._index, self._manifests, there - known)
        self._index.mark(state if self._manifests.state() == state else None, cost_ns, left_out)
        return len(there - known) - len(left_out)

    def _enter_missing_words(self) -> None:
        """Let commits be searched for that an older Relive entered. Needs no lock: manifests do not change."""
        missing = self._index.without_words()
        for begin in range(0, len(missing), _WORDS_AT_ONCE):
            self._index.enter_words(list(self._readable(missing[begin : begin + _WORDS_AT_ONCE])))

    def _readable(self, commits: Iterable[CommitId]) -> Iterator[tuple[CommitId, Manifest]]:
        for commit_id in commits:
            with contextlib.suppress(ObjectCorrupt, RefUnknown):
                yield commit_id, self._manifests.read(commit_id)

    def make_ready(self) -> None:
        """Load now what is needed for images; else the first to take some in or give them back waits for it."""
        _ = self._images

    # -- taking in -----------------------------------------------------------------------------------------------

    def stage(self, spares: SpareStagings | None = None) -> Staging:
        """Begin a commit; ``spares``: of the target's commits before it."""
        with disk_errors("beginning a commit", self._directory):
            return Staging(self._incoming / uuid.uuid4().hex, spares)

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

        return PagePool(self._incoming)

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
        written: Callable[[], None] | None = None,
    ) -> StoredCommit:
        """Make a commit durable, all of whose files were taken or are in the store already.

        Args:
            taken: the manifest's images as they were taken in; None if it has none.
            began_monotonic_ns: when the commit was asked for; its distance to now is the durable time.
            new_bytes: what is to be said of how much the store grew; None: what it is.
            written: called when all of it is written, and only the disk is waited for; it is not durable yet.

        Raises:
            DiskFull, StoreError: it could not be written; the store is as it was.
            ObjectMissing: another process has dropped something that the commit shares with an older one.
        """
        return self._intake.add(
            manifest, taken, began_monotonic_ns=began_monotonic_ns, new_bytes=new_bytes, written=written
        )

    def release_memory(self) -> None:
        """Give back the memory that ``add`` left over, when nobody waits any more; without it the next commit does so."""
        if "_images" in self.__dict__:
            self._images.release_memory()
        if "_contents" in self.__dict__:
            self._contents.close()
        self._last_index.forget()
        with disk_errors("removing what was laid out", self._directory):
            self._drop_plain_trees()

    def release_disk(self) -> None:
        """Give back the space of unnamed files, which hold the pages that the next commit is compared with; it reads them back."""
        if "_images" in self.__dict__:
            self._images.release_disk()

    def _drop_plain_trees(self) -> None:
        """What is sealed does not lie about plain for longer than its branch."""
        if self._format.noted_key is not None and takes_writes(self._directory):
            self._layer_cache.drop_unused()

    def has_object(self, name: str) -> bool:
        """The commit that is being taken in may name this content: its parent has it, or it was taken (it is not checked)."""
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
            return manifest.model_copy(update={"layers": self._contents.layers(manifest)})

    def facts(self, commit_id: CommitId) -> Manifest:
        """As ``manifest``, but from version 4 on without layers: so it needs no pack, and of a sealed store no key.

        Raises:
            RefUnknown: there is none.
            ObjectCorrupt: it has changed, or is no manifest.
        """
        with disk_errors("reading a manifest", self._directory):
            return self._manifests.read(commit_id)

    def lay_out_images(self, manifest: Manifest, directory: Path, *, lazily: bool = False) -> None:
        """Make CRIU's image files in ``directory`` (of the same file system), checked. No thread is left behind.

        Args:
            lazily: leave holes for the pages that ``open_pages`` has; only where ``keeps_pages``.

        Raises:
            RefUnknown: the commit was dropped meanwhile.
            ObjectMissing, ObjectCorrupt: something of an image is gone or damaged; the directory is then of no use.
            SignatureInvalid: it is not signed by this host or one that it trusts.
            KeyMissing, KeyWrong: it is sealed with a key that is not there.
        """
        with disk_errors("laying out images", self._directory):
            if manifest.version == 1:
                lay_out_whole_images(manifest, directory, self._objects)
            else:
                self._images.lay_out(manifest, directory, lazily=lazily)

    def lay_out_small_images(self, manifest: Manifest, directory: Path) -> None:
        """As ``lay_out_images``, but without the page files where these can be made for themselves."""
        with disk_errors("laying out images", self._directory):
            if manifest.version == 1:
                lay_out_whole_images(manifest, directory, self._objects)
            else:
                self._images.lay_out_small(manifest, directory)

    def small_image(self, manifest: Manifest, name: str) -> bytes | None:
        """One image that holds no pages; None where the commit has none of that name. Raises as ``lay_out_images``."""
        with disk_errors("reading an image", self._directory):
            return self._images.read_small(manifest, name) if manifest.version > 1 else None

    def lay_out_page_files(self, manifest: Manifest, directory: Path) -> None:
        """What ``lay_out_small_images`` left out."""
        with disk_errors("laying out images", self._directory):
            if manifest.version > 1:
                self._images.lay_out_pages(manifest, directory)

    def kept_page_files(self, manifest: Manifest) -> list[Path]:
        """What ``lay_out_page_files`` reads if it is there, kept of an earlier branch; it is not checked.

        Raises:
            ObjectCorrupt: the manifest names page files as none are named.
        """
        return self._images.kept_page_files(manifest) if manifest.version > 1 else []

    @staticmethod
    def keeps_pages(manifest: Manifest) -> bool:
        """The commit's pages can be had one by one: it is of version 2 or later, and holds a memory."""
        return manifest.version > 1 and bool(manifest.images)

    def open_pages(self, manifest: Manifest) -> CommitPages:
        """The pages that can come later than the processes they belong to; the caller closes it. Dropping the commit
        meanwhile does no harm.

        Raises:
            ObjectMissing, ObjectCorrupt, SignatureInvalid, KeyMissing, KeyWrong: as ``lay_out_images``.
        """
        with disk_errors("opening the packs", self._directory), self._lock.held(shared=True):
            return self._images.open_pages(manifest)

    def open_memory(self, manifest: Manifest) -> CommitMemory:
        """All its pages and small images, for reading; the caller closes it. Dropping the commit meanwhile does no harm.

        Raises:
            UsageError: an old Relive wrote it, or it holds no memory.
            ObjectMissing, ObjectCorrupt, SignatureInvalid, KeyMissing, KeyWrong: as ``lay_out_images``.
        """
        if not self.keeps_pages(manifest):
            raise UsageError(
                "the memory of this commit cannot be read",
                cause="it holds none, or was written by a Relive that kept it as whole files",
                remedy="restore it and commit the branch's service again",
            )
        with disk_errors("opening the packs", self._directory), self._lock.held(shared=True):
            return self._images.open_memory(manifest)

    def lay_out_layer(self, layer: Layer) -> Path:
        """A directory with the layer's files, for reading only."""
        with disk_errors("laying out files", self._directory):
            return self._layer_cache.get(layer)

    def lay_out_files(self, layer: Layer, directory: Path) -> None:
        """Make the layer's files below an existing directory; raises as ``lay_out_layer``."""
        with disk_errors("laying out files", directory):
            materialize_layer(layer, directory, self._write_content)

    def lay_out_tree(self, name: str, make: Callable[[Path], None]) -> Path:
        """A directory that ``make`` fills the first time that one of this name is asked for; for reading only.

        Args:
            name: BLAKE3 of all that decides what is in it.
        """
        with disk_errors("laying out files", self._directory):
            return self._layer_cache.made(name, make)

    def damaged_trees(self) -> list[str]:
        """Names of what was laid out and is not any more what it was then; each use finds it, too, and makes it anew."""
        with disk_errors("reading what was laid out", self._directory):
            return self._layer_cache.damaged()

    def renew_derived(self) -> list[str]:
        """Make anew what is derived and wrong: laid-out layers, the index. Returns what it was, in words."""
        with disk_errors("making anew what is derived", self._directory):
            done = [f"laid-out layer {name[:12]}" for name in self._layer_cache.drop_damaged()]
            faults = self.index_faults(self._manifests.ids())
        if faults:
            self.rebuild_index()
            self._renewed = []
        return done + [f"index line of {name[:12]}" for name in faults]

    def content_file(self, entry: FileEntry) -> Path:
        """A file that holds the content of a committed file, checked when it was made; for reading only.

        Raises:
            ObjectMissing, ObjectCorrupt: it is gone or damaged.
            KeyMissing, KeyWrong: it is sealed with a key that is not there.
        """
        assert entry.object is not None
        name = entry.object
        with disk_errors("reading a file", self._directory):
            held = self._held_file(name)
            if held is not None:
                return held
            made = self._layer_cache.made(
                hash_bytes(f"content {name}".encode()),
                lambda target: self._write_content(name, target / _CONTENT),
            )
            return made / _CONTENT

    def content(self, entry: FileEntry) -> bytes:
        """The bytes of a committed file; raises as ``content_file``."""
        assert entry.object is not None
        with disk_errors("reading a file", self._directory):
            held = self._held_file(entry.object)
            return self._contents.read(entry.object) if held is None else held.read_bytes()

    def write_content(self, entry: FileEntry, path: Path) -> None:
        """Make a new file with the content of a committed file, checked; raises as ``content_file``."""
        assert entry.object is not None
        with disk_errors("writing a file", path.parent):
            self._write_content(entry.object, path)

    def _write_content(self, name: str, path: Path) -> None:
        held = self._held_file(name)
        if held is None:
            self._contents.write(name, path)
        else:
            shutil.copyfile(held, path)

    def _held_file(self, name: str) -> Path | None:
        """A file that holds the content as it is: of an older commit, checked, or one that was taken; None where there is none."""
        if name in self._intake.new_files:
            return self._intake.new_files.path(name)
        return self._objects.verified(name) if self._objects.path(name).exists() else None

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
            self._follow_manifests()
            return self._drop([commit_id])

    def thin(
        self, name: str, choose: Callable[[Sequence[StoredCommit]], Collection[CommitId]]
    ) -> list[CommitId]:
        """Drop those of a target's commits that ``choose`` names and that have no tag; returns their ids, newest first.

        Args:
            choose: is given all of them, newest first, and asked while nothing else can be dropped or added. What it
                reads to decide (incidents, say) must not change meanwhile: see ``nothing_dropped``.
        """
        with disk_errors("dropping old commits", self._directory), self._lock.held(shared=False):
            self._follow_manifests()
            lines = self.log(name)
            wanted = set(choose(lines)) - set(self.tags().values())
            doomed = [line.id for line in lines if line.id in wanted]
            self._drop(doomed[::-1])  # the oldest first, so that a reader never sees a gap
        return doomed

    @contextlib.contextmanager
    def nothing_dropped(self) -> Iterator[None]:
        """Around finding a commit and writing down that it is needed: meanwhile no process drops any."""
        with disk_errors("locking the store", self._directory), self._lock.held(shared=True):
            yield

    def rebuild_index(self) -> int:
        """Make the index anew from the manifests; returns how many were readable. Damaged manifests are passed over."""
        with disk_errors("making the index anew", self._directory), self._lock.held(shared=False):
            self._index.repair()
            self._index.clear()
            return self._follow_manifests()

    def index_faults(self, commits: Iterable[CommitId]) -> dict[str, str]:
        """Where the index does not say what the manifests of these commits say; by id, or ``index.sqlite`` for all of it.

        Lines that were found wrong, and made anew, when this store was opened are named as well.
        """
        found = dict.fromkeys(self._renewed, "it was changed by something else; it has been made anew")
        with disk_errors("reading the index", self._directory):
            faults = self._index.faults()
            for commit, manifest in self._readable(commits):
                differ = self._index.differences(commit, manifest)
                if differ:
                    found[commit] = f"not as the manifest says: {', '.join(differ)}"
        return found | ({"index.sqlite": faults[0]} if faults else {})

    def _drop(self, commits: Sequence[CommitId]) -> int:
        """Remove commits and what only they used; returns the bytes freed."""
        self._manifests.delete(commits)  # for good before all else: one that comes back must be whole
        self._image_cache.clear()
        if "_contents" in self.__dict__:
            self._contents.forget(commits)
        freed = self._sweep()  # early, since the index may need a little space
        for commit_id in commits:
            freed += sum(self._objects.delete(name) for name in self._index.used_only_by(commit_id))
            self._index.remove(commit_id)
        while repack_dead(self._placements, self._packs):  # each time there is one less that is mostly dead
            freed += self._sweep()
        return freed

    def _sweep(self) -> int:
        return sweep_packs(self._manifests.ids(), self._placements, self._packs)
