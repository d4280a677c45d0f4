"""What a branch lacked in which a debugger is open.

Once the request goes on it is judged like a replay, and must not be taken for one that had all that was recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from relive.model.commit import Manifest
from relive.model.dependency import Dependency
from relive.model.outcome import Outcome
from relive.replay.network import Network
from relive.replay.played import played_words
from relive.replay.ring_collector import BranchDrain
from relive.replay.sequence import misses_of
from relive.replay.stubs.lifecycle import StubLifecycle
from relive.replay.unix_servers import UnixServers
from relive.sandbox.branch import Branch

__all__ = ["BranchWatch"]


class BranchWatch:
    """Watches one branch from before its restore. ``close`` it when that has been stopped.

    Args:
        outlived: the branch may live on after this object, so that its connects are not looked at: nobody would answer them then.
        is_answered: the recorder inside answers in it.
    """

    def __init__(self, *, outlived: bool, is_answered: bool) -> None:
        self._servers = UnixServers()
        self._looks = not outlived
        self._is_answered = is_answered
        self._network: Network | None = None
        self._drain: BranchDrain | None = None

    @property
    def connects(self) -> Callable[[int], None] | None:
        """What ``restore`` is given."""
        return self._servers.watch if self._looks else None

    def begin(self, branch: Branch, manifest: Manifest, unrecorded: Collection[Dependency] = ()) -> None:
        """Look at a branch that was just restored; ``unrecorded`` as for ``Network.of_branch``."""
        self._network = Network.of_branch(branch.facts.init, manifest, unrecorded)
        self._drain = BranchDrain(branch.rings)

    def complete_outcome(self, outcome: Outcome, stage: StubLifecycle | None) -> tuple[Outcome, str]:
        """The outcome with what was missing, and what the recording answered, in a line. Ask once."""
        stubs = stage.report(None) if stage is not None else None
        events = []
        if self._drain is not None:
            self._drain.close()
            events = self._drain.events
        unreached, cut_off = self._servers.unreached(), []
        if self._network is not None:
            cut_off = self._network.cut_off()
            unreached = [*(self._network.unreached() if stubs is None else []), *unreached]
        misses = [*misses_of(events), *(stage.misses() if stage is not None else [])]
        lacked = {"unreached": unreached, "cut_off": cut_off, "misses": misses, "stubs": stubs}
        outcome = outcome.model_copy(update=lacked)
        return outcome, played_words(outcome, events if self._is_answered else None)

    def troubles(self) -> list[str]:
        """What could not be seen, in sentences."""
        return self._servers.troubles()

    def close(self) -> None:
        """Let go. May be called again."""
        if self._network is not None:
            self._network.close()
        if self._drain is not None:
            self._drain.close()
        self._servers.close()
