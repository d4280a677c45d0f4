"""What engines have in common whose "containers" are processes of the host: no images, and no ends that were kept."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping

from relive.agent.commits.dumper import Dumper
from relive.config import Settings
from relive.errors import TargetUnknown
from relive.model.life_paths import LifePaths
from relive.model.watched import WatchSpec
from relive.watching.processes.answering import answering_of
from relive.watching.processes.process_dumper import ProcessDumper
from relive.watching.state import ContainerState

__all__ = ["HostEngine"]


class HostEngine(ABC):
    """See ``Engine``.

    Args:
        spec: what the watch was asked for; None before there is one.
        called: what a process or unit is called; None: as it names itself.
    """

    def __init__(self, spec: WatchSpec | None = None, called: str | None = None) -> None:
        self._spec = spec
        self._called = called
        self._answering = answering_of(spec)

    @abstractmethod
    def inspect(self, container: str) -> ContainerState:
        """See ``Engine``."""

    def image_environment(self, image: str) -> Mapping[str, str]:
        """See ``Engine``: there are no images."""
        raise TargetUnknown(f"there is no image {image!r}", cause="processes and units have none")

    def check_health(self, container: str) -> None:
        """See ``Engine``."""
        if self._answering is not None:
            self._answering.check()

    def last_exit(self, container: str, since: str) -> int | None:
        """See ``Engine``: of a process only the tracer can have seen it, and systemd tells only of the last end, behind which
        another start has begun since.
        """
        return None

    def dumper(self, settings: Settings, container: str, name: str, paths: LifePaths) -> Dumper:
        """See ``Engine``."""
        files = self._spec.files if self._spec is not None else []
        return ProcessDumper(settings, lambda: self.inspect(container).pid, name, container, paths, files)
