"""How often a service may be committed by the clock: decisions over its memory and its last pauses.

1. The next pause is estimated from the memory that there is to save, and from what the last pauses took for each byte. Of those the
   quickest counts: a load that came and went is no reason to hold commits back. Pauses that are long ago do not count at all.
2. Above a limit no commit is taken. Nothing would be measured any more then, but see 1: some minutes later it is tried once.
3. Otherwise the next one comes so late that pauses are no more than a share of the time.

docs/limits.md says from which measurements; ``check.estimate`` has them.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from relive.check.estimate import pause_range
from relive.kernel import procfs
from relive.model.capsule import Policy
from relive.model.pace import PaceState
from relive.model.quantities import size

__all__ = ["CommitPace", "Footprint", "footprint_of"]

_PAUSES = 5
_COUNTS_FOR = 600.0  # [s]
_GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class Footprint:
    """What a commit has to save of a tree: its number of processes, and bytes of memory that are in no file."""

    processes: int
    memory: int


def footprint_of(root: int) -> Footprint:
    """As /proc tells at once. Pages that processes share with their parent since a fork are saved for each, as they are counted."""
    private = shared = processes = 0
    for pid in procfs.tree_of(root):
        memory = procfs.memory_of(pid)
        if memory is not None:
            processes += 1
            private += memory.private
            shared = max(shared, memory.shared)  # of workers, the same
    return Footprint(processes, private + shared)


@dataclass(frozen=True, slots=True)
class _Pause:
    at: float
    seconds: float
    of: Footprint


class CommitPace:
    """Belongs to the agent's event loop.

    Args:
        footprint: tells what there is to save now.
        clock: monotonic [s].
    """

    def __init__(
        self, policy: Policy, footprint: Callable[[], Footprint], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._policy, self._footprint, self._clock = policy, footprint, clock
        self._pauses: deque[_Pause] = deque(maxlen=_PAUSES)
        self._not_before = 0.0

    def note(self, pause_us: int) -> None:
        """The service has stood still, for whatever commit."""
        pause = _Pause(self._clock(), pause_us / 1e6, self._footprint())
        self._pauses.append(pause)
        if self._policy.pause_share is not None:
            self._not_before = pause.at + pause.seconds / self._policy.pause_share

    def wait_left(self) -> float:
        """Seconds until pauses are no more than their share."""
        return max(0.0, self._not_before - self._clock())

    def state(self) -> PaceState:
        """As it is now."""
        expected, basis = self._expected()
        policy = self._policy
        wanted = None if policy.on_change else policy.seconds
        actual = wanted
        if wanted is not None and policy.pause_share is not None and self._pauses:
            actual = max(wanted, self._pauses[-1].seconds / policy.pause_share)
        return PaceState(
            wanted_s=wanted,
            actual_s=actual,
            share=policy.pause_share,
            expected_us=round(expected * 1e6),
            basis=basis,
            limit_us=round(policy.pause_limit * 1e6) if policy.pause_limit is not None else None,
            is_held=policy.pause_limit is not None and expected > policy.pause_limit,
        )

    def _expected(self) -> tuple[float, str]:
        now, there = self._clock(), self._footprint()
        counted = [one for one in self._pauses if now - one.at < _COUNTS_FOR]
        what = f"{size(there.memory)} of memory"
        if not counted:
            usual = pause_range(processes=there.processes, memory=there.memory)
            return (usual.least + usual.most) / 2e6, f"estimated from {what}"
        quickest = min(one.seconds * max(1.0, there.memory / max(one.of.memory, 1)) for one in counted)
        return quickest, f"estimated from {what} and the last {len(counted)} pauses"
