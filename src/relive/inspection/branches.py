"""A branch that lives as long as a question: restored from the commit, sealed, asked, and removed whatever happened in it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from relive.config import Settings
from relive.containers.restore.restoring import restore
from relive.errors import BranchUnknown, RestoreFailed, UsageError
from relive.incidents.report.masking import Mask
from relive.inspection.reading import learn_secrets
from relive.kernel import procfs
from relive.model.commit import CommitId
from relive.sandbox.branch import Branch
from relive.sandbox.restore_request import RestoreRequest
from relive.store import Store

__all__ = ["Questioned", "chosen_process", "questioned_branch"]

_STOPS, _POLL = 2.0, 0.005  # [s]


@dataclass(frozen=True, slots=True)
class Questioned:
    """A branch, and since when it runs (monotonic seconds)."""

    branch: Branch
    began: float

    def ran_ms(self) -> int:
        """For how long it has run: it goes on from the commit until it is asked."""
        return int((time.monotonic() - self.began) * 1000)

    def refused(self) -> int:
        """Attempts to reach an address outside so far."""
        try:
            return self.branch.seal().refused
        except BranchUnknown:  # what was asked has ended it
            return 0


@contextlib.contextmanager
def questioned_branch(settings: Settings, store: Store, commit: CommitId, mask: Mask) -> Iterator[Questioned]:
    """Restore a commit for the block; the branch, with all that was done in it, is gone at its end.

    Args:
        mask: learns the secrets of the commit's processes.

    Raises:
        RefUnknown, StoreError, RestoreFailed: as ``restore``; RestoreFailed also where an answer cannot be understood.
    """
    facts = store.facts(commit)
    with store.images.open_memory(facts) as memory:
        learn_secrets(memory, mask)
    branch = restore(settings, store, commit, RestoreRequest(is_owned=True))
    try:
        began = time.monotonic()
        if facts.stopped_by is not None:
            _await_stop(branch.facts.root)
        with _understanding():
            yield Questioned(branch, began)
    finally:
        branch.stop()


def chosen_process(
    branch: Branch,
    process: int | None,
    suits: Callable[[int], bool],
    best: Callable[[Sequence[int]], int],
    unsuited: UsageError,
) -> int:
    """The host's pid of the process of a branch that is asked.

    Args:
        process: its number inside; None: the best of those that suit.
        best: chooses among them; the root comes first, if it suits.

    Raises:
        UsageError: there is no such process, or none suits: ``unsuited``.
    """
    pids = procfs.tree_of(branch.facts.root)
    if process is not None:
        found = next((pid for pid in pids if procfs.innermost_pid(pid) == process), None)
        if found is None:
            raise UsageError(
                f"the commit has no process {process}",
                cause=f"there are {', '.join(str(procfs.innermost_pid(pid)) for pid in pids)}",
                remedy="`relive inspect` lists them",
            )
        return found
    suited = [pid for pid in pids if suits(pid)]
    if not suited:
        raise unsuited
    return best(suited)


def _await_stop(root: int) -> None:
    """The processes of a commit before a fatal signal are stopped again a moment after they are there."""
    until = time.monotonic() + _STOPS
    while time.monotonic() < until and not all(procfs.is_stopped(pid) for pid in procfs.tree_of(root)):
        time.sleep(_POLL)


@contextlib.contextmanager
def _understanding() -> Iterator[None]:
    """What the process says may be anything: an expression can change the interpreter that answers."""
    try:
        yield
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError) as error:
        raise RestoreFailed(
            "what the branch's process said cannot be understood",
            cause=f"it answers with something else than was asked ({type(error).__name__})",
            remedy="`relive restore` brings the commit back to look at it by hand",
        ) from error
