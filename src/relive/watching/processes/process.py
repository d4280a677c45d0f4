"""A process that somebody else started, as the watch asks for it: known by its pid, and gone for good when it ends."""

from __future__ import annotations

from collections.abc import Mapping

from relive.agent.commits.dumper import Dumper
from relive.agent.failures.log_files import find_logs
from relive.config import Settings
from relive.errors import TargetUnknown, UsageError
from relive.kernel import procfs
from relive.model.capsule import LifePaths
from relive.model.watched import WatchSpec
from relive.watching.engine import Output, OutputTarget
from relive.watching.processes.answering import answering_of
from relive.watching.processes.output import FileOutput
from relive.watching.processes.running import ended_state, life_of, name_of, read_life, running_state
from relive.watching.processes.taking import ProcessDumper
from relive.watching.state import ContainerState

__all__ = ["Processes"]


class Processes:
    """See ``Engine``.

    Args:
        spec: what the watch was asked for; None before there is one.
        called: what a process is called; None: by its command and pid.
    """

    name = "pid"

    def __init__(self, spec: WatchSpec | None = None, called: str | None = None) -> None:
        self._spec = spec
        self._called = called
        self._answering = answering_of(spec)

    def inspect(self, container: str) -> ContainerState:
        """See ``Engine``. Of a process that has ended nobody is left who could tell more than that."""
        found = read_life(container)
        if found is None:
            raise UsageError(f"{container!r} is no pid", remedy="write pid:1234")
        pid, ticks = found
        stat = procfs.read_stat(pid)
        is_there = stat is not None and not stat.has_ended
        if stat is None or not is_there or ticks not in (None, stat.start_ticks):
            if ticks is None:
                raise TargetUnknown(f"there is no process {pid}", remedy="`ps -e` lists processes")
            return ended_state(
                identifier=container,
                name="",
                target=f"pid:{pid}",
                exit_code=None,
                stopped=None,
                is_final=True,
            )
        return running_state(
            pid,
            identifier=life_of(stat),
            name=self._called or name_of(stat),
            target=f"pid:{pid}",
            health=self._answering.health if self._answering is not None else None,
            logs="files" if find_logs(pid, self._spec) else "none",
            has_group=False,
        )

    def image_environment(self, image: str) -> Mapping[str, str]:
        """See ``Engine``: there are no images."""
        raise TargetUnknown(f"there is no image {image!r}", cause="processes have none")

    def check_health(self, container: str) -> None:
        """See ``Engine``."""
        if self._answering is not None:
            self._answering.check()

    def last_exit(self, container: str, since: str) -> int | None:
        """See ``Engine``: only the tracer can have seen it."""
        return None

    def output(self, container: str, target: OutputTarget) -> Output:
        """See ``Engine``."""
        return FileOutput(lambda: find_logs(self.inspect(container).pid, self._spec), target)

    def taker(self, settings: Settings, container: str, name: str, paths: LifePaths) -> Dumper:
        """See ``Engine``."""
        files = self._spec.files if self._spec is not None else []
        return ProcessDumper(settings, lambda: self.inspect(container).pid, name, container, paths, files)
