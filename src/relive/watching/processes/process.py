"""A process that somebody else started, as the watch asks for it: known by its pid, and gone for good when it ends."""

from __future__ import annotations

from relive.agent.failures.log_files import find_logs
from relive.errors import TargetUnknown, UsageError
from relive.kernel import procfs
from relive.watching.engine import Output, OutputTarget
from relive.watching.processes.host_engine import HostEngine
from relive.watching.processes.output import FileOutput
from relive.watching.processes.running import ended_state, life_of, name_of, read_life, running_state
from relive.watching.state import ContainerState

__all__ = ["Processes"]


class Processes(HostEngine):
    """See ``Engine``."""

    name = "pid"

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

    def output(self, container: str, target: OutputTarget) -> Output:
        """See ``Engine``."""
        return FileOutput(lambda: find_logs(self.inspect(container).pid, self._spec), target)
