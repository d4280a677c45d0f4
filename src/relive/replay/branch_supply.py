"""Branches for the runs of replays: one that was used is put back in place where that can be, else another is restored.

A run begins with a branch that is as its commit was. Putting one back (``sandbox.rewinder``) takes some milliseconds, restoring
more than a hundred. It is done only where nothing that an earlier run has left can be seen by the next one:

- the rewinder compares all of the process that it does not write, and files; while the process stands still, connections that
  have ended are forgotten, what lies in the clients' ends is taken out, and what stands for the outside is made anew;
- the monotonic clock cannot be put back. By it a run begins at most ``LATE_MOST`` later than the first one did: a slow restore
  makes as much.

Whatever stands against it, the branch is ended, another is restored, and its run says why.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import socket
import sys
import termios
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from relive.config import Settings
from relive.containers.restore.restoring import restore
from relive.kernel import procfs
from relive.model.branch import Clock
from relive.model.quantities import duration
from relive.recording.rings import RingMode
from relive.replay.answers import AnswerFiles, Calls
from relive.replay.network import Network
from relive.replay.replay_input import ReplayInput
from relive.replay.stubs.lifecycle import StubLifecycle
from relive.replay.unix_servers import UnixServers
from relive.sandbox.branch import Branch
from relive.sandbox.restore_request import RestoreRequest
from relive.sandbox.rewinder import CannotRewind, put_back
from relive.store import Store

__all__ = ["LATE_MOST", "BranchNeed", "BranchSupply", "ReplayBranch", "lasting_branches"]

LATE_MOST = 1.0  # [s]
_REFUSALS_MOST = 2  # of putting back; then no branch is made ready for it any more, which costs some time
_READ = 1 << 16  # [bytes]

Schedule = dict[int, tuple[int, frozenset[int]]]
"""By thread: its nice value, and the processors that it may run on."""


@dataclass(frozen=True, slots=True, eq=False)
class BranchNeed:
    """What a branch has to be for a run.

    Attributes:
        calls, policy: who answers the service's calls, and what becomes of those without an answer.
        lazily: it runs before its memory is all there.
        seconds: for how long its requests are sent.
        is_measured: what it takes is counted from its beginning.
        anew: it shall be restored, whatever there is.
    """

    case: ReplayInput
    clock: Clock
    calls: Calls
    policy: Mapping[str, str]
    lazily: bool = False
    seconds: float = 0.0
    is_measured: bool = False
    anew: bool = False

    def is_as(self, other: BranchNeed) -> bool:
        """Both branches are the same before they run."""
        one, two = self.case, other.case
        return (
            one.commit == two.commit
            and one.plan.answered == two.plan.answered
            and list(one.unrecorded) == list(two.unrecorded)
            and (self.clock, self.calls, dict(self.policy)) == (other.clock, other.calls, dict(other.policy))
            # What is laid beside it, and what stands for the outside, follow from these.
            and one.window is two.window
            and one.stubs is two.stubs
        )

    @property
    def refusal(self) -> str | None:
        """Why its branch cannot serve another run, as far as that is known before; None: it may."""
        if self.anew:
            return "as asked"
        if self.lazily:
            return "its memory comes while it runs"
        if self.is_measured:
            return "what it takes is measured from its beginning"
        return _too_late(self.seconds)


@dataclass(slots=True)
class ReplayBranch:
    """A branch as its commit was, for one run, and what watches it.

    Attributes:
        network: None: it had ended already.
        began: when it ran for the first time, monotonic [s].
        schedule: of its threads then: a search for a schedule sets it from outside.
        can_rewind: something keeps what it was.
        restore_us: what restoring it took, or putting it back.
        is_put_back: it was put back in place.
        log_from: what its service had written to its standard error by then [bytes]; that is of earlier runs.
        anew_because: why it was restored though there was one before; None: there was none, or it was put back.
    """

    branch: Branch
    need: BranchNeed
    stage: StubLifecycle
    servers: UnixServers
    network: Network | None
    began: float
    can_rewind: bool
    restore_us: int
    schedule: Schedule
    is_put_back: bool = False
    log_from: int = 0
    anew_because: str | None = None

    @property
    def refusal(self) -> str | None:
        """Why it serves no other run; None: it may."""
        if not self.can_rewind:
            return "nothing was kept of what it was before it ran"
        if self.network is None or not self.branch.is_alive or self.branch.wait_status is not None:
            return "its service has ended"
        if not self.stage.can_begin_anew:
            return "what answers it on a connection of its commit cannot begin anew"
        if self.branch.groups.oom_kills() or not self.network.seal().is_intact:
            return "its sandbox is not as it was"
        return _too_late(time.monotonic() - self.began)

    def put_back(self, stage: StubLifecycle) -> None:
        """Have it be as its commit was, with what stands for the outside, where ``refusal`` is None.

        Raises:
            CannotRewind: it is to be ended.
        """
        began = time.monotonic()
        _put_schedule_back(self.schedule)
        stage.begin_as(self.stage)
        put_back(self.branch.directory, while_held=lambda: self._begin_anew(stage))
        self.stage, self.is_put_back, self.anew_because = stage, True, None
        self.restore_us = int((time.monotonic() - began) * 1e6)

    def _begin_anew(self, stage: StubLifecycle) -> None:
        """While it stands still; raises OSError."""
        assert self.network is not None
        for descriptor in self.branch.peers.values():
            _take_out(descriptor)
        self.network.begin_anew(lambda: stage.open_ends(self.branch, self.need.case.manifest))
        self.servers.begin_anew()
        self.log_from = self.branch.log("stderr").stat().st_size

    async def remove(self) -> None:
        """End it and all that watches it, while the event loop has others go on.

        Nearly all of it is waiting for the kernel: for the end of namespaces, and of each packet socket for a grace period of RCU
        (``packet_release()``), 11 ms. It is done to its end, also where the replay is given up meanwhile.
        """
        works = [self._stop, self.stage.release, *([self.network.close] if self.network is not None else [])]
        if (
            self.need.lazily
        ):  # in this thread: the next restore will fork, and no other thread may be at work then (``Pager``)
            for work in works:
                work()
            return
        await asyncio.gather(*map(asyncio.to_thread, works))

    def _stop(self) -> None:
        try:
            self.branch.stop()
        finally:
            self.servers.close()


@contextlib.contextmanager
def lasting_branches(settings: Settings, store: Store) -> Iterator[BranchSupply]:
    """A supply for one replay after the other, each in an event loop of its own."""
    supply = BranchSupply(settings, store, is_lasting=True)
    try:
        yield supply
    finally:
        asyncio.run(supply.close())


class BranchSupply:
    """Gives branches to the runs of replays, and takes them back. For one event loop at a time; ``close`` it.

    Args:
        is_lasting: further replays from the same commit are to be expected when one is done.
    """

    def __init__(self, settings: Settings, store: Store, *, is_lasting: bool = False) -> None:
        self.is_lasting = is_lasting
        self._settings = settings
        self._store = store
        self._idle: list[ReplayBranch] = []
        self._why: str | None = None  # the last one given back could not be put back
        self._given_up: str | None = None
        self._refusals = 0

    async def take(
        self, need: BranchNeed, stage: StubLifecycle, answers: AnswerFiles | None, *, is_last: bool
    ) -> ReplayBranch:
        """A branch as its commit was.

        Args:
            answers: what lies beside its rings, which follows from the need; None: nothing.
            is_last: no other run will need it.

        Raises:
            ReliveError: as ``restore``.
        """
        while self._idle:
            idle = self._idle.pop()
            if not need.is_as(idle.need) or (self._why_not(idle)):
                await idle.remove()
                continue
            try:
                idle.put_back(stage)
            except CannotRewind as refusal:
                self._refused(str(refusal))
                await idle.remove()
            else:
                return idle
        why, self._why = self._why, None
        rewinds = need.refusal is None and (self.is_lasting or not is_last) and self._given_up is None
        return self._restore(need, stage, answers, why, rewinds=rewinds)

    def _refused(self, why: str) -> None:
        self._refusals += 1
        self._why = why
        if self._refusals == _REFUSALS_MOST:
            self._given_up = f"given up, since the second time {why}"

    def _restore(
        self,
        need: BranchNeed,
        stage: StubLifecycle,
        answers: AnswerFiles | None,
        why: str | None,
        *,
        rewinds: bool,
    ) -> ReplayBranch:
        case, servers = need.case, UnixServers()
        try:
            branch = restore(
                self._settings,
                self._store,
                case.commit,
                RestoreRequest(
                    clock=need.clock,
                    lazily=need.lazily,
                    is_owned=True,
                    recorder=RingMode.FREE if answers is None else RingMode.REPLAY,
                    lay_beside=None if answers is None else answers.lay,
                    answered=case.plan.answered,
                    outside=stage.outside,
                    connects=servers.watch,
                    rewinds=rewinds,
                ),
            )
        except BaseException:
            servers.close()
            raise
        began = time.monotonic()
        network = Network.of_branch(branch.facts.init, case.manifest, case.unrecorded)
        return ReplayBranch(
            branch,
            need,
            stage,
            servers,
            network,
            began,
            rewinds,
            branch.facts.restore_us,
            _schedule_of(branch.facts.root) if rewinds else {},
            anew_because=why,
        )

    async def give_back(self, used: ReplayBranch, *, is_last: bool, is_whole: bool) -> None:
        """After a run, whose watchers have let go of it; it is ended where no other run can have it.

        Args:
            is_last: no other run will need it. is_whole: the run came to its end, and nobody else ended the branch.
        """
        if is_whole and (self.is_lasting or not is_last) and not self._why_not(used):
            self._idle.append(used)
        else:
            await used.remove()

    def _why_not(self, used: ReplayBranch) -> str | None:
        """Why it serves no other run, which the next one that is restored says; None: it may."""
        self._why = used.need.refusal or self._given_up or used.refusal
        return self._why

    async def close(self) -> None:
        """End all that were not taken again."""
        while self._idle:
            await self._idle.pop().remove()


def _schedule_of(root: int) -> Schedule:
    found = {}
    for tid in procfs.threads_of(root):
        with contextlib.suppress(OSError):
            found[tid] = os.getpriority(os.PRIO_PROCESS, tid), frozenset(os.sched_getaffinity(tid))
    return found


def _put_schedule_back(schedule: Schedule) -> None:
    for tid, (nice, processors) in schedule.items():
        with contextlib.suppress(OSError):  # it has ended, which the rewinder sees
            os.setpriority(os.PRIO_PROCESS, tid, nice)
            os.sched_setaffinity(tid, processors)


def _too_late(seconds: float) -> str | None:
    if seconds <= LATE_MOST:
        return None
    return f"its monotonic clock would be {duration(int(seconds * 1e6))} late, and may be {duration(int(LATE_MOST * 1e6))}"


def _take_out(descriptor: int) -> None:
    """What a client has been sent and nobody has read; raises OSError where the connection is broken, or something is under way."""
    with socket.socket(fileno=os.dup(descriptor)) as peer:
        try:
            while peer.recv(_READ, socket.MSG_DONTWAIT):
                pass
        except BlockingIOError:
            if (waiting := _unsent(peer)) == 0:
                return
            raise BlockingIOError(f"{waiting} bytes of a client are still under way") from None
    raise ConnectionResetError("the service has closed a connection of its commit")


def _unsent(sock: socket.socket) -> int:
    """Bytes that the other end has not acknowledged."""
    return int.from_bytes(fcntl.ioctl(sock, termios.TIOCOUTQ, bytes(4)), sys.byteorder)
