"""A unit of systemd, as the watch asks for it: ``systemctl show``. It goes on from one main process to the next."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping

from relive.agent.failures.log_files import find_logs
from relive.errors import HostIncapable, TargetUnknown, ToolMissing
from relive.kernel import procfs
from relive.model.watched import WatchSpec
from relive.watching.engine import Output, OutputTarget
from relive.watching.output import OutputFollower
from relive.watching.processes.host_engine import HostEngine
from relive.watching.processes.output import FileOutput
from relive.watching.processes.running import ended_state, running_state
from relive.watching.state import ContainerState, HealthCheck

__all__ = ["Units", "read_unit"]

_ASKED = (
    *("Id", "LoadState", "ActiveState", "MainPID", "NRestarts", "Result"),
    *("ExecMainCode", "ExecMainStatus", "StandardOutput"),
)
_LIMIT = 15.0  # [s] for systemd to answer
_EXITED = 1  # CLD_EXITED; what else an end is (CLD_KILLED, CLD_DUMPED) has a signal's number for its status
_JOURNALED = frozenset({"journal", "journal+console", "syslog", "syslog+console", "kmsg", "inherit"})


class Units(HostEngine):
    """See ``Engine``."""

    name = "unit"

    def inspect(self, container: str) -> ContainerState:
        """See ``Engine``."""
        return read_unit(
            _shown(container),
            called=self._called,
            health=self._answering.health if self._answering is not None else None,
            spec=self._spec,
        )

    def output(self, container: str, target: OutputTarget) -> Output:
        """See ``Engine``: files where there are some, else the journal."""
        if self._spec is not None and self._spec.log_files:
            return FileOutput(lambda: find_logs(self.inspect(container).pid, self._spec), target)
        if _shown(container).get("StandardOutput") in _JOURNALED:
            module = "relive.watching.processes.journald"
            return OutputFollower(
                lambda since: [sys.executable, "-P", "-m", module, container, since], target
            )
        return FileOutput(lambda: find_logs(self.inspect(container).pid, self._spec), target)


def read_unit(
    shown: Mapping[str, str],
    *,
    called: str | None = None,
    health: HealthCheck | None = None,
    spec: WatchSpec | None = None,
) -> ContainerState:
    """How a unit is, of what ``systemctl show`` says.

    Raises:
        TargetUnknown: there is none of that name.
    """
    unit = shown.get("Id", "")
    if not unit or shown.get("LoadState") in ("not-found", None):
        raise TargetUnknown(
            f"there is no unit {unit!r}",
            cause="systemd knows none of that name",
            remedy="`systemctl list-units --type=service` lists them",
        )
    pid = _number(shown, "MainPID")
    name, restarts = called or unit.removesuffix(".service"), _number(shown, "NRestarts")
    if pid and procfs.exists(pid):
        journaled = shown.get("StandardOutput") in _JOURNALED
        return running_state(
            pid,
            identifier=unit,
            name=name,
            target=f"unit:{unit}",
            health=health,
            restarts=restarts,
            logs="journal" if journaled else "files" if find_logs(pid, spec) else "none",
            has_group=True,
        )
    code, status = _number(shown, "ExecMainCode"), _number(shown, "ExecMainStatus")
    stopped = shown.get("ActiveState") in ("inactive", "deactivating") and shown.get("Result") == "success"
    return ended_state(
        identifier=unit,
        name=name,
        target=f"unit:{unit}",
        exit_code=status if code == _EXITED else 128 + status if code else None,
        stopped=stopped,
        is_final=False,
        restarts=restarts,
    )


def _number(shown: Mapping[str, str], name: str) -> int:
    text = shown.get(name, "")
    return int(text) if text.isascii() and text.isdigit() else 0


def _shown(unit: str) -> dict[str, str]:
    command = ["systemctl", "show", f"--property={','.join(_ASKED)}", "--", unit]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_LIMIT, check=False)
    except FileNotFoundError:
        raise ToolMissing(
            "there is no systemctl",
            cause="units are systemd's",
            remedy="write pid:NUMBER for a service without systemd",
        ) from None
    except subprocess.TimeoutExpired as error:
        raise HostIncapable(f"systemd did not answer within {_LIMIT:g} s", cause=" ".join(command)) from error
    if done.returncode != 0:
        raise HostIncapable(
            "systemd does not answer",
            cause=done.stderr.strip().partition("\n")[0],
            remedy="`systemctl status` shows whether it runs here; write pid:NUMBER for a service without systemd",
        )
    return dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)
