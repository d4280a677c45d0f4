"""Captures that become durable together: one time the store's lock, one wait for the disk, one change of the index.

A clock takes captures while the ones before are written. What has gathered by then is the next group, so a slow disk makes groups
larger and no queue longer: how much may wait is bounded (``Committer.capture``).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from relive.agent.commits.dumper import DumpedCommit
from relive.errors import ReliveError
from relive.model.commit import CommitId
from relive.store import Store, StoredCommit, WrittenCommit

__all__ = ["CommitGroup", "give_up", "store_group"]

Outcome = StoredCommit | Exception
"""What became of a capture."""


@dataclass(slots=True)
class CommitGroup:
    """Captures of one life, in the order in which they were taken. One thread adds to it, another takes all of it, once."""

    _captures: list[DumpedCommit] = field(default_factory=list)
    _is_taken: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, capture: DumpedCommit) -> int | None:
        """Its position in the group; None: all of that was taken, and the capture belongs to another."""
        with self._lock:
            if self._is_taken:
                return None
            self._captures.append(capture)
            return len(self._captures) - 1

    def take(self) -> list[DumpedCommit]:
        """All that were added; no more can be."""
        with self._lock:
            self._is_taken = True
            return self._captures


def store_group(
    store: Store, captures: list[DumpedCommit], parent: CommitId | None, written: Callable[[], None]
) -> list[Outcome]:
    """Make captures durable, each on top of the one before; all are of no use afterwards.

    Of one that cannot be written the next goes on from the one before it. If the disk takes none of them, none is stored.

    Args:
        parent: of the first.
        written: called when only the disk is waited for.

    Returns:
        Of each what became of it, in their order.
    """
    outcomes: dict[int, Outcome] = {}
    made: dict[int, WrittenCommit] = {}
    try:
        with store.taking_in(parent, captures[0].advance):
            for number, capture in enumerate(captures):
                try:
                    if made:
                        store.go_on_from(made[max(made)])
                    made[number] = one = capture.write(store, [parent] if parent is not None else [])
                except Exception as error:
                    outcomes[number] = error
                    # At once: the next must not count on a file that this one brought.
                    _roll_back(capture, error)
                else:
                    parent = one.id
            if made:
                written()
                outcomes |= zip(made, store.publish(list(made.values())), strict=True)
    except Exception as error:
        for number in range(len(captures)):
            if number not in outcomes:
                outcomes[number] = error
                _roll_back(captures[number], error)
    finally:
        for one in made.values():
            one.discard()
        for capture in captures:
            capture.discard()
    return [outcomes[number] for number in range(len(captures))]


def give_up(captures: list[DumpedCommit], error: Exception) -> list[Outcome]:
    """Nothing of these could be begun; they are of no use afterwards. Returns what ``store_group`` returns."""
    for capture in captures:
        _roll_back(capture, error)
        capture.discard()
    return [error] * len(captures)


def _roll_back(capture: DumpedCommit, error: Exception) -> None:
    if isinstance(error, ReliveError):
        capture.roll_back(error)
