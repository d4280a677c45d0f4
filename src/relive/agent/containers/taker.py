"""How commits of a watched container are taken: found anew in each of its starts, dumped by Relive's CRIU under a watchdog."""

from __future__ import annotations

from collections.abc import Callable

from relive.agent.taker import Taken
from relive.config import Settings
from relive.engine.capture import Gate, StoppedBy, capture
from relive.engine.criu import CriuTools
from relive.engine.target import Target
from relive.engine.watchdog import Watchdog
from relive.errors import CapsuleError, CommitFailed, ProcessGone
from relive.kernel import procfs
from relive.model.commit import Trigger
from relive.store import Store

__all__ = ["ContainerTaker"]


class ContainerTaker:
    """See ``Taker``. Within one start of the container it remembers which files it has copied.

    Args:
        find: makes a target of the container as it runs now; raises as its engine's room says.
    """

    def __init__(self, settings: Settings, find: Callable[[], Target]) -> None:
        self._settings = settings
        self._find = find
        self._tools = CriuTools(settings.tools_path)
        self._tools.check()
        self._store = Store(settings.store)
        self._watchdog = Watchdog(self._tools.watchdog)
        self._found: tuple[int, Target] | None = None

    def take(self, trigger: Trigger, gate: Gate, stopped: StoppedBy | None, name: str | None) -> Taken:
        """See ``Taker``."""
        started, target = self._target()
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
            )
        except CapsuleError:  # of the watchdog, which has ended
            self._watchdog.close()
            self._watchdog = Watchdog(self._tools.watchdog)
            raise
        except CommitFailed as error:
            if procfs.is_same_process(target.root, started):
                raise
            raise ProcessGone(
                f"container {target.name} ended while it was being committed",
                cause=error.cause,
                remedy="what was committed before is kept (`relive log`)",
            ) from error

    def _target(self) -> tuple[int, Target]:
        if self._found is None or not procfs.is_same_process(self._found[1].root, self._found[0]):
            target = self._find()
            stat = procfs.read_stat(target.root)
            self._found = (stat.start_ticks if stat is not None else 0, target)
        return self._found

    def close(self) -> None:
        """End the watchdog and close the store."""
        self._watchdog.close()
        self._store.close()
