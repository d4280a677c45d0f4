"""How commits of a watched container are taken: found anew in each of its starts, dumped by Relive's CRIU under a watchdog."""

from __future__ import annotations

from collections.abc import Callable

from relive.agent.taker import CriuTaker, Taken
from relive.config import Settings
from relive.engine.capture import Gate, StoppedBy
from relive.engine.target import Target
from relive.errors import CommitFailed, ProcessGone
from relive.kernel import procfs
from relive.model.commit import Trigger

__all__ = ["ContainerTaker"]


class ContainerTaker:
    """See ``Taker``. Within one start of the container it remembers which files it has copied.

    Args:
        find: makes a target of the container as it runs now; raises as its engine's room says.
    """

    def __init__(self, settings: Settings, find: Callable[[], Target]) -> None:
        self._find = find
        self._taker = CriuTaker(settings, self._target)
        self._found: tuple[int, Target] | None = None

    def take(self, trigger: Trigger, gate: Gate, stopped: StoppedBy | None, name: str | None) -> Taken:
        """See ``Taker``; raises ProcessGone where the container ended meanwhile."""
        try:
            return self._taker.take(trigger, gate, stopped, name)
        except CommitFailed as error:
            if self._found is None or _still_runs(self._found):
                raise
            raise ProcessGone(
                f"container {self._found[1].name} ended while it was being committed",
                cause=error.cause,
                remedy="what was committed before is kept (`relive log`)",
            ) from error

    def _target(self) -> Target:
        if self._found is None or not _still_runs(self._found):
            target = self._find()
            stat = procfs.read_stat(target.root)
            self._found = (stat.start_ticks if stat is not None else 0, target)
        return self._found[1]

    def close(self) -> None:
        """End the watchdog and close the store."""
        self._taker.close()


def _still_runs(found: tuple[int, Target]) -> bool:
    started, target = found
    return procfs.is_same_process(target.root, started)
