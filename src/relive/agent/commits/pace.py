"""How often a service may be committed by the clock: decisions over its memory, its last pauses, and what commits took.

1. The next pause is estimated from the memory that there is to save, and from what the last pauses took for each byte. Of those the
   quickest counts: a load that came and went is no reason to hold commits back. Pauses that are long ago do not count at all.
2. Above a limit no commit is taken. Nothing would be measured any more then, but see 1: some minutes later it is tried once.
3. Otherwise the next one comes so late that pauses are no more than a share of the time, the bytes that were stored no more than
   a budget, what commits cost the service no more than a share of its time (``service_cost``), and that the one before is durable.
   What was due meanwhile is left out, and counted (``brakes``).

docs/limits.md says from which measurements; ``check.estimate`` has them.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass

from relive.agent.commits.brakes import left_out, paid_until, rest, spent_until
from relive.agent.commits.service_cost import ServiceCost
from relive.check.estimate import copied_ahead, pause_range
from relive.kernel import procfs
from relive.model.commit_policy import Policy
from relive.model.pace import Brake, PaceState
from relive.model.quantities import size

__all__ = ["CommitPace", "Footprint", "footprint_of", "recent_footprint"]

_PAUSES = 5
_COUNTS_FOR = 600.0  # [s]
_GIB = 1 << 30
_LOOK_EVERY = (
    0.1  # [s] a service has not grown much since then, and looking takes as long as a tenth of a small commit
)


@dataclass(frozen=True, slots=True)
class Footprint:
    """What a commit has to save of a tree.

    Attributes:
        memory: bytes that are in no file. ahead: those of them that are copied while the tree runs.
    """

    processes: int
    memory: int
    ahead: int = 0


def footprint_of(root: int, pre_copy_from: int | None = None) -> Footprint:
    """As /proc tells at once. Pages that processes share with their parent since a fork are saved for each, as they are counted.

    Args:
        pre_copy_from: as of ``Settings``.
    """
    private = shared = processes = 0
    for pid in procfs.tree_of(root):
        memory = procfs.memory_of(pid)
        if memory is not None:
            processes += 1
            private += memory.private
            shared = max(shared, memory.shared)  # of workers, the same
    return Footprint(processes, private + shared, copied_ahead(private, pre_copy_from))


def recent_footprint(
    root: Callable[[], int],
    pre_copy_from: int | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Callable[[], Footprint]:
    """Tells the footprint of the tree of ``root``, as of at most a tenth of a second ago.

    Args:
        root: gives the pid of the service's first process. pre_copy_from: as of ``Settings``. clock: monotonic [s].
    """
    known: tuple[float, Footprint] | None = None

    def look() -> Footprint:
        nonlocal known
        now = clock()
        if known is None or now - known[0] >= _LOOK_EVERY:
            known = now, footprint_of(root(), pre_copy_from)
        return known[1]

    return look


@dataclass(frozen=True, slots=True)
class _Pause:
    at: float
    seconds: float
    of: Footprint


class CommitPace:
    """Belongs to the agent's event loop.

    Args:
        footprint: tells what there is to save now.
        cost: begins to tell what commits cost the service; asked where the policy has a share for that.
        clock: monotonic [s].
    """

    def __init__(
        self,
        policy: Policy,
        footprint: Callable[[], Footprint],
        cost: Callable[[], ServiceCost],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._policy, self._footprint, self._clock = policy, footprint, clock
        self._cost = cost() if policy.cost_share is not None else None
        self._told = clock()  # when it was asked last
        self._last_cost: float | None = None
        self._pauses: deque[_Pause] = deque(maxlen=_PAUSES)
        self._begun: float | None = None  # the clock's last commit
        self._due = 0.0  # one that failed is tried again sooner
        self._since = clock()  # the last one of whoever
        self._under_way: tuple[Brake | None, float | None] | None = (
            None  # what had slowed the commit that is being taken
        )
        self._brakes: dict[Brake, float] = {}
        self._left_out: Counter[Brake] = Counter()
        self._bytes: int | None = None
        self._durable: float | None = None
        self._full_because: str | None = None

    @property
    def is_quicker_than_the_store(self) -> bool:
        """The clock is due before the last commit was durable."""
        interval = self._policy.interval
        return self._durable is not None and interval is not None and self._durable > interval

    @property
    def counts_each(self) -> bool:
        """What each commit costs or brings decides when the next is due, so they are taken one by one."""
        return self._cost is not None or self._policy.budget is not None

    def begin(self) -> float:
        """The clock's next commit begins; what was due since the one before is left out. Returns the moment."""
        now, interval = self._clock(), self._policy.interval
        if self._begun is not None and interval is not None:
            self._left_out.update(left_out(self._begun, now, interval, self._brakes))
        self._under_way = self._slowed()
        self._begun = self._since = now
        return now

    def note(self, pause_us: int, full_because: str | None = None, pages: int = 0) -> None:
        """The service has stood still, for whatever commit.

        Args:
            full_because: as of ``PaceState``.
            pages: it pays for its next write to so many.
        """
        self._full_because = full_because
        if self._cost is not None:
            self._cost.note(pause_us, pages)
        pause = _Pause(self._clock(), pause_us / 1e6, self._footprint())
        self._pauses.append(pause)
        if self._policy.pause_share is not None:
            self._brakes[Brake.PAUSES] = pause.at + pause.seconds / self._policy.pause_share
        if self._begun is None:
            self._since = pause.at

    def stored(self, new_bytes: int) -> None:
        """The store has grown by so much, for whatever commit."""
        self._bytes = new_bytes
        if self._policy.budget is not None:
            now = self._clock()
            before = self._brakes.get(Brake.BUDGET, now)
            self._brakes[Brake.BUDGET] = spent_until(before, now, new_bytes, self._policy.budget)
        if self._cost is not None and self._policy.cost_share is not None:
            since, self._told = self._told, self._clock()
            self._last_cost = self._cost.take()
            before = self._brakes.get(Brake.SERVICE, since)
            self._brakes[Brake.SERVICE] = paid_until(before, since, self._last_cost, self._policy.cost_share)

    def done(self) -> None:
        """The commit that was begun last is taken, and the clock does not wait for it to be stored, or it is."""
        self._under_way = None
        now, interval = self._clock(), self._policy.interval
        if self._begun is not None and interval is not None:
            self._due = self._begun + interval
            # Where it is measured what the service pays for a commit, that says how long to wait.
            busy = 0.0 if self._cost is not None else now - self._begun
            self._brakes[Brake.STORE] = now + rest(busy, interval)

    def durable(self, begun: float) -> None:
        """The commit that ``begin`` said to have begun at that moment is durable."""
        if self._policy.interval is not None:
            self._durable = self._clock() - begun
        if self._begun == begun and self._under_way is not None:
            self.done()

    def wait_left(self) -> float:
        """Seconds until the clock's next commit is due, and no brake holds."""
        return max(0.0, max([self._due, *self._brakes.values()]) - self._clock())

    @property
    def actual(self) -> float | None:
        """Seconds between the clock's last commit and its next; None: it has no interval."""
        return self._slowed()[1]

    @property
    def is_held(self) -> bool:
        """The next pause would be above the limit."""
        limit = self._policy.pause_limit
        return limit is not None and self._expected()[0] > limit

    def state(self) -> PaceState:
        """As it is now."""
        expected, basis = self._expected()
        policy = self._policy
        slowed_by, actual = self._slowed()
        return PaceState(
            wanted_s=policy.interval,
            actual_s=actual,
            share=policy.pause_share,
            expected_us=round(expected * 1e6),
            basis=basis,
            last_us=round(self._pauses[-1].seconds * 1e6) if self._pauses else None,
            limit_us=round(policy.pause_limit * 1e6) if policy.pause_limit is not None else None,
            is_held=policy.pause_limit is not None and expected > policy.pause_limit,
            slowed_by=slowed_by,
            budget=policy.budget,
            bytes=self._bytes,
            durable_us=round(self._durable * 1e6) if self._durable is not None else None,
            cost_share=policy.cost_share,
            cost_us=round(self._last_cost * 1e6) if self._last_cost is not None else None,
            left_out=dict(self._left_out),
            micro=policy.micro if policy.full_because is None else None,  # else nobody can ask for them
            full_because=self._full_because,
        )

    def _slowed(self) -> tuple[Brake | None, float | None]:
        """Which brake holds the next commit for longest, if it is longer than asked for, and seconds between that and the last."""
        if self._under_way is not None:
            return self._under_way
        wanted = self._policy.interval
        if wanted is None or not self._brakes:
            return None, wanted
        brake = max(self._brakes, key=lambda one: self._brakes[one])
        seconds = self._brakes[brake] - self._since
        return (brake, seconds) if seconds > wanted else (None, wanted)

    def _expected(self) -> tuple[float, str]:
        now, there = self._clock(), self._footprint()
        counted = [one for one in self._pauses if now - one.at < _COUNTS_FOR]
        what = f"{size(there.memory)} of memory"
        if not counted:
            usual = pause_range(processes=there.processes, memory=there.memory, ahead=there.ahead)
            return (usual.least + usual.most) / 2e6, f"estimated from {what}"
        quickest = min(one.seconds * max(1.0, there.memory / max(one.of.memory, 1)) for one in counted)
        return quickest, f"estimated from {what} and the last {len(counted)} pauses"
