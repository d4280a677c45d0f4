"""How commits of one target are taken, as ``Committer`` asks for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from relive.checkpoint.criu import CriuTools
from relive.checkpoint.dump import Aside, capture
from relive.checkpoint.kernel_trust import KernelTrust
from relive.checkpoint.micro_commits import MicroCommits
from relive.checkpoint.request_gate import RequestGate
from relive.checkpoint.suspect_captures import SuspectCaptures
from relive.checkpoint.target import StoppedBy, Target
from relive.checkpoint.watchdog import Watchdog
from relive.config import Settings
from relive.errors import CapsuleError, ReliveError
from relive.model.advance import Advance
from relive.model.commit import CommitId, Cursor, Trigger
from relive.model.commit_policy import Policy
from relive.store import Store, WrittenCommit

__all__ = ["CriuDumper", "DumpedCommit", "Dumper", "dumper_settings"]


class DumpedCommit(Protocol):
    """A commit that is not yet durable: ``relive.checkpoint.dumped.Capture``, or a container's."""

    @property
    def name(self) -> str:
        """Random; the recording and the manifest both hold it."""

    @property
    def cursor(self) -> Cursor | None:
        """Where in the recording it was taken; None where nothing is recorded."""

    @property
    def pause_us(self) -> int:
        """Microseconds the target stood still."""

    @property
    def is_micro(self) -> bool:
        """It was taken on top of the one before (``checkpoint.micro_commits``)."""

    @property
    def full_because(self) -> str | None:
        """Why it is a full commit, though micro-commits are asked for; None: it is none, or they are not."""

    @property
    def written_pages(self) -> int:
        """So many pages are write-protected since, as the next commit is to know which of them were written; 0: none."""

    @property
    def advance(self) -> Advance:
        """Is told how far storing it is."""

    def write(self, store: Store, parents: list[CommitId]) -> WrittenCommit:
        """Write all of it, within ``Store.taking_in``. Raises DiskFull or StoreError."""

    def roll_back(self, failure: ReliveError) -> None:
        """It was not stored, for this reason."""

    def discard(self) -> None:
        """Remove what is left of it, whether it was stored or not."""


class Dumper(Protocol):
    """Takes commits of one target. Its methods are called in other threads than the event loop's, one at a time."""

    @property
    def advance(self) -> Advance:
        """How far the commits are that are being taken or stored; to be read in any thread."""

    def dump(
        self,
        trigger: Trigger,
        gate: RequestGate,
        stopped: StoppedBy | None,
        name: str | None,
        aside: Aside,
    ) -> DumpedCommit:
        """Take one; the target runs on afterwards. Arguments and errors are those of ``checkpoint.dump.capture``."""

    @property
    def tracker_pid(self) -> int | None:
        """Of the process that tracks the target between commits; None: there is none."""

    def begin(self, root: int) -> None:
        """A start of its target has begun: what it does from now on belongs to its commits. ``root``: pid of its first process."""

    def close(self) -> None:
        """Let go of what it holds."""


class CriuDumper:
    """With CRIU, under a watchdog.

    Args:
        find: gives the target before each commit; what it raises comes out of ``dump``.
    """

    def __init__(self, settings: Settings, find: Callable[[], Target]) -> None:
        self._settings, self._find = settings, find
        self._tools = CriuTools(settings.tools_path)
        self._tools.check()
        self._store = Store(settings.store)
        self._watchdog = Watchdog(self._tools.watchdog)
        trust, suspects = KernelTrust(settings.home), SuspectCaptures(settings.home)
        self._micro = MicroCommits(self._tools, self._store, trust, suspects) if settings.micro else None
        self.advance = Advance()

    def dump(
        self,
        trigger: Trigger,
        gate: RequestGate,
        stopped: StoppedBy | None,
        name: str | None,
        aside: Aside,
    ) -> DumpedCommit:
        """See ``Dumper``."""
        target = self._find()
        try:
            return capture(
                target,
                trigger,
                settings=self._settings,
                store=self._store,
                watchdog=self._watchdog,
                gate=gate,
                stopped=stopped,
                name=name,
                advance=self.advance,
                micro=self._micro,
                aside=aside,
            )
        except CapsuleError:  # of the watchdog, which has ended
            self._watchdog.close()
            self._watchdog = Watchdog(self._tools.watchdog)
            raise

    @property
    def tracker_pid(self) -> int | None:
        """See ``Dumper``; may be asked in any thread."""
        return self._micro.process if self._micro is not None else None

    def begin(self, root: int) -> None:
        """Nothing is to be done: the target is found at each commit."""

    def close(self) -> None:
        """End the watchdog and the tracker, and close the store."""
        self._watchdog.close()
        if self._micro is not None:
            self._micro.close()
        self._store.close()


def dumper_settings(settings: Settings, policy: Policy) -> Settings:
    """With what was said of the service at its start, so that a later agent, started by whom it may be, commits it alike."""
    return settings if policy.micro is None else settings.model_copy(update={"micro": policy.micro})
