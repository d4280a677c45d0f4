"""Commits on top of another: only what has changed is copied while a process stands still, by ``native/micro.c``.

1. With a full commit tracking begins: before CRIU is started what is written is noted from then on, and while CRIU holds the
   process it is looked at (``begin_base``, ``look``). When the commit's images are whole, it is the base (``set_base``).
2. The next commit stops the process for a moment (``stop``, ``go``). ``micro_images`` decides whether a commit can be made of what
   was copied, and makes the images of a whole commit; these are the next base.
3. Whatever goes wrong, or cannot be told: the base is forgotten, and the commit is taken by CRIU.

A base is only in the memory of this process, and only while the tracker lives that has noted all writes since. It is taken out
before anything is copied, and put back when all of the new one is there. So what was interrupted, by whichever death, is never
built upon.
"""

from __future__ import annotations

from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from relive.checkpoint.criu import CriuTools
from relive.checkpoint.expected_files import ExpectedFiles
from relive.checkpoint.kernel_trust import KernelTrust, running_kernel
from relive.checkpoint.memory_files import MemoryFiles
from relive.checkpoint.micro_record import FullCommitNeeded, MicroRecord, NotNow, read_record, read_seen
from relive.checkpoint.micro_tracker import KernelDistrusted, MicroTracker, TrackerDied, is_of_memory
from relive.checkpoint.suspect_captures import SuspectCaptures
from relive.checkpoint.target import Target
from relive.checkpoint.uncompared import UncomparedChain, key_of
from relive.errors import ReliveError
from relive.kernel import procfs
from relive.kernel.boot import boot_id
from relive.model.commit import TargetKind
from relive.store import Staging, Store
from relive.store.pages.numpy_threads import load_numpy
from relive.store.staging import SpareStagings

if TYPE_CHECKING:
    from relive.checkpoint.micro_images import MicroBase, MicroCommit
    from relive.store.held_images import HeldImages

__all__ = ["MicroCommits"]

_PATIENCE_MOST = 64  # full commits without a try, of a process that can never be tracked
_COMPARED = "all, to compare"  # of ``native/micro/audit.c``: what was told of a process is what was asked
_UNCOMPARED_MOST = (
    1024  # names kept of each process; of commits in which something was believed it is 255 at most
)


class MicroCommits:
    """Of one target; belongs to the thread that takes its commits.

    Args:
        trust: whether what the kernel's objects tell is believed; lost where it is found to be wrong.
        suspects: gets the commits since the last comparison then.

    Attributes:
        reason: why the last commit was not taken on top of another; None: it was.
        waits: the process stands still until ``go``; else all its files were as expected, and it runs on.
        spares: staging directories of its commits that are done.
        has_lost_tracker: the tracker died in the middle of the last one, and may have left connections in repair mode.
    """

    def __init__(self, tools: CriuTools, store: Store, trust: KernelTrust, suspects: SuspectCaptures) -> None:
        self._tools, self._trust, self._suspects = tools, trust, suspects
        self._chain = UncomparedChain(trust.path.parent, running_kernel(), boot_id())
        self._uncompared: dict[int, deque[str]] = {}  # by place in the tree: captures since a comparison
        self._compared: list[bool] = []  # by place in the tree, in the commit under way
        self._believes_memory = False  # the counters of some process's, in that
        self._staging: Staging | None = None
        self._store = store
        self._tracker: MicroTracker | None = None
        self._begun: list[tuple[int, int]] | None = None  # pid and start of each that is tracked
        self._asks = False  # the tracker believes nothing
        self._base: MicroBase | None = None
        self._under_way: MicroBase | None = None
        self._refusals = 0
        self._left_alone = 0
        self._told = MemoryFiles()  # what the trackers and this tell each other in each commit
        self._log = structlog.get_logger()
        self.spares = SpareStagings()
        self.reason: str | None = None
        self.waits = False
        self.has_lost_tracker = False

    # -- a full commit ---------------------------------------------------------------------------------------------

    def begin_base(self, target: Target) -> None:
        """A full commit is about to be taken; note what is written from now on."""
        self.forget(None)
        if self._left_alone > 0:
            self._left_alone -= 1
            return
        try:
            is_capsule = target.kind is TargetKind.CAPSULE
            self._chain.begin(key_of(target.life, target.name), is_of_this_boot=is_capsule)
            begun = _identities(target.root)
            if self._tracker is None or not self._tracker.is_alive or self._begun != begun:
                self._end_tracker()
                self._asks = self._trust.lost() is not None
                self._tracker = MicroTracker(
                    self._tools,
                    [pid for pid, _ in begun],
                    is_capsule=is_capsule,
                    asks=self._asks,
                )
                self._begun = begun
            self._tracker.begin_base()
        except (FullCommitNeeded, OSError) as refusal:
            self._refused(refusal)

    def look(self) -> None:
        """To be called while CRIU holds the process, before it lets go."""
        if self._tracker is not None:
            try:
                self._tracker.look(self._directory / "look")
            except FullCommitNeeded as refusal:
                self._refused(refusal)

    def set_base(self, images: Path) -> None:
        """The images of the full commit are whole; the next one may be taken on top of it."""
        if self._tracker is None:
            return
        load_numpy()
        from relive.checkpoint.micro_images import MicroBase  # noqa: PLC0415 - it takes numpy, and few agents need it

        try:
            seen = [read_seen(path) for path in self._tracker.files(self._directory / "look")]
            self._base = MicroBase(images, seen, self._store.page_pool())
            self._chain.base_taken()
        except (FullCommitNeeded, OSError, ReliveError, ValueError, KeyError) as refusal:
            self._refused(refusal)

    # -- a commit on top of it -------------------------------------------------------------------------------------

    @property
    def tracker_pid(self) -> int | None:
        """Of the tracker that ``stop`` would ask; None where there is no base."""
        return self._tracker.pid if self._tracker is not None and self._base is not None else None

    @property
    def process(self) -> int | None:
        """Of the tracker, where there is one; may be asked in any thread."""
        tracker = self._tracker
        return tracker.pid if tracker is not None else None

    def stop(self, target: Target, expected: ExpectedFiles | None = None) -> bool:
        """Stop the process and copy what has changed; False: there is to be a full commit, and it runs.

        ``expected``: where it is so, the process need not wait for anybody (``waits``).
        """
        self.has_lost_tracker = self.waits = False
        base, self._base = self._base, None  # until all is there
        if base is None or self._tracker is None:
            return False
        try:
            if self._begun != _identities(target.root):
                raise FullCommitNeeded("its processes are others")
            if not self._asks and self._trust.lost() is not None:
                raise FullCommitNeeded("the kernel's objects were found to be wrong, by another agent")
            if expected is not None:
                self._told.make(self._directory / "expected")
                (self._directory / "expected").write_bytes(expected.encode())
                self._tracker.expect(self._directory / "expected")
            for path in self._tracker.files(self._directory / "record"):
                self._told.make(path)
            self.waits = self._tracker.stop(self._directory / "record")
            self._under_way = base
        except FullCommitNeeded as refusal:
            self.has_lost_tracker = isinstance(refusal, TrackerDied)
            self._refused(refusal)
            return False
        return True

    def go(self, target: Target, expected: ExpectedFiles | None = None) -> MicroCommit | None:
        """Have it run on, where it waits; what was taken, or None where there is to be a full commit."""
        assert self._under_way is not None and self._tracker is not None
        base = self._under_way
        try:
            if self.waits:
                self._tracker.go()
            records = [read_record(path) for path in self._tracker.files(self._directory / "record")]
            if not self.waits and expected is not None and expected.descriptors is not None:
                _check_descriptors(expected.descriptors, records[0])
            self._compared = [_COMPARED in record.seen.asked for record in records]
            self._believes_memory = any(record.seen.believed for record in records)
            return base.decide(records, Path(f"/proc/{target.root}/root"))
        except (FullCommitNeeded, ReliveError, ValueError, KeyError, StopIteration) as refusal:
            self._refused(refusal)
            return None

    def let_go(self) -> None:
        """Something else went wrong while the process stood still: it runs on, and nothing was taken."""
        self.forget("the commit was given up")

    def files_of(self, commit: MicroCommit) -> HeldImages:
        """The images that tell of the connections; ``images_of`` is to follow."""
        assert self._under_way is not None
        return self._under_way.files_of(commit)

    def images_of(self, commit: MicroCommit, files: HeldImages, capture: str) -> HeldImages:
        """All images, from which the next commit goes on; ``capture``: what the manifest will call it.

        Raises:
            OSError: the disk is full.
        """
        assert self._under_way is not None
        base, self._under_way = self._under_way, None
        self._chain.note(commit.taken[1], self._compared, believes_memory=self._believes_memory)
        self._note_uncompared(capture)
        images = base.images_of(commit, files)
        self._told.give_back()
        self._base = base
        self._refusals = 0
        self.reason = None
        return images

    def _note_uncompared(self, capture: str) -> None:
        for place, is_compared in enumerate(self._compared):
            names = self._uncompared.setdefault(place, deque(maxlen=_UNCOMPARED_MOST))
            if is_compared:
                names.clear()  # and this one holds what was asked
            else:
                names.append(capture)

    # -- the end ---------------------------------------------------------------------------------------------------

    def _refused(self, refusal: Exception) -> None:
        reason = str(refusal)
        if not isinstance(refusal, NotNow):
            self._refusals += 1
            self._left_alone = min(1 << min(self._refusals - 1, 16), _PATIENCE_MOST) - 1
        if isinstance(refusal, KernelDistrusted):
            self._distrust(reason)
        self._log.info("a full commit is needed", reason=reason)
        self.forget(reason)
        self._end_tracker()

    def _distrust(self, reason: str) -> None:
        suspects = sorted({name for names in self._uncompared.values() for name in names})
        self._log.error(
            "the kernel's objects are not believed any more: micro-commits ask for everything from now on, and those since the last"
            " comparison may hold what had changed: they are not restored"
            + (", nor is any that believed its counters of memory" if is_of_memory(reason) else ""),
            reason=reason,
            file=str(self._trust.path),
            suspect=len(suspects),
            suspects=str(self._suspects.path),
        )
        try:
            self._suspects.add(suspects)
            self._suspects.add_uncompared(running_kernel(), of_memory=is_of_memory(reason))
            self._uncompared.clear()
        except OSError as error:
            self._log.error(
                "which commits may be wrong cannot be kept: they would be restored",
                error=str(error),
                captures=suspects,
            )
        try:
            self._trust.lose(reason)
        except OSError as error:
            self._log.error("that cannot be kept for other agents and the next start", error=str(error))

    def forget(self, reason: str | None) -> None:
        """What has been noted is of no use; a tracker that holds the process lets go of it."""
        self.reason = reason or self.reason
        if self._under_way is not None:
            self._end_tracker()
        self._base = self._under_way = None
        self._told.give_back(kept=0)

    def _end_tracker(self) -> None:
        tracker, self._tracker = self._tracker, None
        self._chain.end()
        if tracker is not None:
            tracker.close()

    @property
    def _directory(self) -> Path:
        if self._staging is None:
            self._staging = self._store.stage()
        return self._staging.directory

    def close(self) -> None:
        """End the tracker and remove what lies about."""
        self.forget(None)
        self._end_tracker()
        self._told.close()
        staging, self._staging = self._staging, None
        if staging is not None:
            staging.discard()
        self.spares.close()


def _check_descriptors(expected: frozenset[int], record: MicroRecord) -> None:
    if expected != record.seen.positions.keys():
        raise NotNow("files were opened or closed right before it was stopped")


def _identities(root: int) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for pid in procfs.tree_of(root):
        facts = procfs.read_stat(pid)
        if facts is None or facts.state == "Z":
            raise FullCommitNeeded("one of its processes has ended")
        found.append((pid, facts.start_ticks))
    return found
