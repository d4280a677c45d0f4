"""Recovering the index from the manifests: one that is damaged is made anew, and lines that a crash kept from it are added.

The manifests are the truth: a commit is there when its manifest is. The index only finds them fast, so nothing is lost with it
but what no manifest says (how long the commit took to be durable, how much of it was new). Who opens a store brings the two into
line:

1. a file that is no database is replaced by an empty index (``open_index``);
2. lines whose checksums do not fit are made anew from their manifests;
3. where the directory of manifests is not in the state that the index has noted, the two are compared: a manifest without a line
   gets one (a crash came between the two), a line without a manifest shows a drop that broke off, which is finished.
"""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from relive.errors import ObjectCorrupt, RefUnknown
from relive.kernel.disk_errors import takes_writes
from relive.model.commit import CommitId, Manifest
from relive.store.index import CommitIndex, StoredCommit, believed_lines, size_of
from relive.store.lock import StoreLock
from relive.store.manifests import Manifests

__all__ = ["IndexRecovery", "open_index"]

_WORDS_AT_ONCE = 500  # commits in one write to the index


def open_index(path: Path, lock: StoreLock, manifests: Manifests) -> CommitIndex:
    """Open the index; one that is no database is replaced by an empty one.

    On a disk that takes no writes here it is one in memory, made from all manifests: SQLite cannot read a file with a write-ahead
    log without writing.

    Raises:
        sqlite3.OperationalError: the file is not to blame: disk full, no right to write.
    """
    if not takes_writes(path.parent):
        index = CommitIndex(None)
        known = believed_lines(path)
        _renew_lines(index, manifests, {commit_id: known.get(commit_id) for commit_id in manifests.ids()})
        return index
    if path.exists():
        with contextlib.suppress(sqlite3.DatabaseError):
            return CommitIndex(path)
    # Alone: SQLite does not wait when several processes give a fresh file its journal mode at once.
    with lock.held(shared=False):
        try:
            return CommitIndex(path)
        except sqlite3.OperationalError:
            raise
        except sqlite3.DatabaseError:
            for part in path.parent.glob(f"{path.name}*"):
                part.unlink(missing_ok=True)
            return CommitIndex(path)


class IndexRecovery:
    """Of one store, with its index open."""

    def __init__(
        self,
        index: CommitIndex,
        manifests: Manifests,
        lock: StoreLock,
        drop: Callable[[Sequence[CommitId]], object],
    ) -> None:
        """Do nothing yet.

        Args:
            drop: finishes what a crash left of dropping these commits; called with the store locked alone.
        """
        self._index, self._manifests, self._lock, self._drop = index, manifests, lock, drop
        self._renewed: list[CommitId] = []

    def follow_unless_busy(self) -> None:
        """Bring the index into line, as far as that can be done without waiting for who holds the store."""
        self._renewed = _renew_lines(self._index, self._manifests, self._index.doubtful())
        if self._index.follows(self._manifests.state()):
            return
        # Who holds the lock lives and finishes its work; a stopped one must not keep others from reading.
        # With 100,000 manifests a comparison takes a tenth of a second, which is not spent for each command while commits
        # arrive: what a crash kept out of the index may then be missed for some seconds. Who drops commits always compares.
        try:
            with self._lock.held(shared=False, wait=False):
                self.follow()
        except BlockingIOError:
            # What is on its way in gets its line from its own agent, too; what was dropped meanwhile loses it again the next time.
            _add_lines(self._index, self._manifests, self._manifests.ids() - self._index.ids())

    def follow(self) -> int:
        """Bring the index into line; call it with the store locked alone. Returns lines added."""
        began_ns = time.thread_time_ns()  # not the time by the wall: waiting for the processor is no cost
        state = self._manifests.state()  # before they are listed
        there, known = self._manifests.ids(), self._index.ids()
        cost_ns = time.thread_time_ns() - began_ns
        if known - there:
            self._drop(sorted(known - there))
        left_out = _add_lines(self._index, self._manifests, there - known)
        self._index.mark(state if self._manifests.state() == state else None, cost_ns, left_out)
        return len(there - known) - len(left_out)

    def enter_missing_words(self) -> None:
        """Let commits be searched for that an older Relive entered. Needs no lock: manifests do not change."""
        missing = self._index.without_words()
        for begin in range(0, len(missing), _WORDS_AT_ONCE):
            self._index.enter_words(list(self._readable(missing[begin : begin + _WORDS_AT_ONCE])))

    def rebuild(self) -> int:
        """Make all lines anew; call it with the store locked alone. Returns how many manifests were readable."""
        self._index.repair()
        self._index.clear()
        lines = self.follow()
        self._renewed = []
        return lines

    def faults(self, commits: Iterable[CommitId]) -> dict[str, str]:
        """As ``Store.index_faults``."""
        found: dict[str, str] = dict.fromkeys(
            self._renewed, "it was changed by something else; it has been made anew"
        )
        faults = self._index.faults()
        for commit, manifest in self._readable(commits):
            differ = self._index.differences(commit, manifest)
            if differ:
                found[commit] = f"not as the manifest says: {', '.join(differ)}"
        return found | ({"index.sqlite": faults[0]} if faults else {})

    def _readable(self, commits: Iterable[CommitId]) -> Iterator[tuple[CommitId, Manifest]]:
        for commit_id in commits:
            with contextlib.suppress(ObjectCorrupt, RefUnknown):
                yield commit_id, self._manifests.read(commit_id)


def _renew_lines(
    index: CommitIndex, manifests: Manifests, commits: Mapping[CommitId, StoredCommit | None]
) -> list[CommitId]:
    """Make lines anew from their manifests, and remove those of commits that are not there. Needs no lock: manifests do not change.

    Args:
        commits: with what is believed of them still, their durable time and new bytes; None: nothing.

    Returns:
        Those of which nothing was believed.
    """
    for commit_id, known in commits.items():
        try:
            manifest = manifests.read(commit_id)
        except RefUnknown:
            index.remove(commit_id)
            continue
        except ObjectCorrupt:
            continue  # `verify` tells of it
        index.add(
            commit_id,
            manifest,
            durable_us=known.durable_us if known is not None else None,
            size=size_of(manifest),
            new_bytes=known.new_bytes if known is not None else 0,
        )
    return [commit_id for commit_id, known in commits.items() if known is None]


def _add_lines(index: CommitIndex, manifests: Manifests, commits: Collection[CommitId]) -> list[CommitId]:
    """Give these commits their lines; one may be dropped meanwhile. Returns those whose manifests cannot be read."""
    left_out = []
    for commit_id in sorted(commits):
        try:
            manifest = manifests.read(commit_id)
        except RefUnknown:
            continue
        except ObjectCorrupt:
            left_out.append(commit_id)
            continue
        index.add(commit_id, manifest, durable_us=None, size=size_of(manifest), new_bytes=0)
    return left_out
