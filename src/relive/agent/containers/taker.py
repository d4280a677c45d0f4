"""How commits of a watched container are taken: by its engine's room, under a watchdog."""

from __future__ import annotations

from relive.agent.taker import Taken
from relive.config import Settings
from relive.engine.capture import Gate, StoppedBy
from relive.engine.criu import CriuTools
from relive.engine.podman.commit import capture_container
from relive.engine.podman.container import PodmanContainer, find_container
from relive.engine.podman.target import container_target
from relive.engine.target import Target
from relive.engine.watchdog import Watchdog
from relive.errors import CapsuleError
from relive.kernel import procfs
from relive.model.commit import Trigger
from relive.store import Store

__all__ = ["PodmanTaker"]


class PodmanTaker:
    """See ``Taker``. Within one start of the container it remembers which files it has copied."""

    def __init__(self, settings: Settings, container: str) -> None:
        self._settings = settings
        self._name = container
        self._tools = CriuTools(settings.tools_path)
        self._tools.check()
        self._store = Store(settings.store)
        self._watchdog = Watchdog(self._tools.watchdog)
        self._found: tuple[int, PodmanContainer, Target] | None = None

    def take(self, trigger: Trigger, gate: Gate, stopped: StoppedBy | None) -> Taken:
        """See ``Taker``."""
        container, target = self._target()
        try:
            return capture_container(
                container,
                target,
                trigger,
                settings=self._settings,
                store=self._store,
                watchdog=self._watchdog,
                gate=gate,
                stopped=stopped,
            )
        except CapsuleError:  # of the watchdog, which has ended
            self._watchdog.close()
            self._watchdog = Watchdog(self._tools.watchdog)
            raise

    def _target(self) -> tuple[PodmanContainer, Target]:
        if self._found is not None:
            started, container, target = self._found
            if procfs.is_same_process(container.pid, started):
                return container, target
        container = find_container(self._name)
        stat = procfs.read_stat(container.pid)
        target = container_target(container)
        self._found = (stat.start_ticks if stat is not None else 0, container, target)
        return container, target

    def close(self) -> None:
        """End the watchdog and close the store."""
        self._watchdog.close()
        self._store.close()
