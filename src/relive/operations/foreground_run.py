"""Starting a service and staying with it until it has ended, as ``relive run`` does at a terminal or for a supervisor.

Only the CLI has this: output, signals and descriptors are those of the process that asks.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from pydantic import Field

from relive.agent.capsule.agent_process import agent_lives
from relive.agent.capsule.inherited import InheritedDescriptors
from relive.agent.capsule.launch import launch
from relive.agent.capsule.lives import Capsule, all_lives
from relive.agent.capsule.readiness import Ready, listens
from relive.agent.capsule.sd_notify import NotifyRelay
from relive.agent.capsule.supervision import Supervision
from relive.config import Settings
from relive.errors import UsageError
from relive.incidents.incidents import Incidents
from relive.model.capsule import CapsuleSpec
from relive.model.life_paths import LifePaths
from relive.model.limits import parse_limit
from relive.model.signals import parse_signal
from relive.operations.foreground import Foreground
from relive.operations.progress import Progress
from relive.operations.respawning import tend_capsules
from relive.operations.running import (
    RunParams,
    ServiceParams,
    check_ports,
    replace_umask,
    report_start,
    spec_of,
)

__all__ = ["ForegroundParams", "check_supervision", "run_in_foreground"]

_EARLIER_LIMIT = 10.0  # [s] for the life before, whose command was killed, to end
_EARLIER_POLL = 0.02  # [s]


class ForegroundParams(ServiceParams):
    """As the CLI has it: what the process that asks does for the service while it runs."""

    supervised: bool | None = Field(
        default=None,
        description="Stand for the service to a supervisor: they end together, in the same way; "
        "default: if systemd or supervisord started it, or as process 1",
    )
    signal_all: str | None = Field(
        default=None,
        description="A signal, such as TERM, that is handed on to each process of the service, not only the first",
    )
    detach: bool = Field(default=False, description="Return as soon as the service is ready; it runs on")

    def detached(self, directory: Path, given: Supervision) -> RunParams:
        """What is asked for with ``detach``."""
        shared = {name: getattr(self, name) for name in ServiceParams.model_fields}
        return RunParams(**shared, directory=directory, environment=given.environment)


def check_supervision(params: ForegroundParams, given: Supervision) -> None:
    """Raises UsageError where what is asked for does not fit who started this process."""
    if params.detach and params.supervised:
        raise UsageError("--detach and --supervised exclude each other")
    if given.is_unit and params.memory is not None:
        raise UsageError(
            "--memory cannot be used in a systemd unit",
            cause="systemd limits the memory of a unit's processes by a control group of its own",
            remedy="write MemoryMax= in the unit",
        )
    check_ports(params)


def run_in_foreground(
    settings: Settings,
    params: ForegroundParams,
    given: Supervision,
    directory: Path,
    output: Sequence[int],
    progress: Progress,
) -> int | None:
    """Start the service and show it until it has ended; its raw wait status, None where nobody could note it.

    In the main thread, since signals are handed on. The calling process's umask becomes the service's.

    Args:
        output: descriptors for its standard output and error.

    Raises:
        UsageError: what is asked for cannot be meant.
        CapsuleExists, CapsuleStartFailed, HostIncapable: it was not started.
    """
    to_all = parse_signal(params.signal_all) if params.signal_all is not None else None
    limits = tuple(parse_limit(text) for text in params.limit)
    spec = spec_of(settings, params, directory, given.environment)
    tend_capsules(settings, only=spec.name if given.is_supervised else None)
    ours, line = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    handed = InheritedDescriptors(
        line=line.fileno() if given.is_supervised else None,
        sockets=given.sockets,
        own_pid=tuple(given.own_pid),
        umask=replace_umask(),
        limits=limits,
        is_unit=given.is_unit,
    )
    foreground = Foreground(
        settings,
        is_supervised=given.is_supervised,
        to_all=to_all,
        line=ours if given.is_supervised else None,
    )
    earlier = _earlier(settings, spec) if given.has_supervisor else None
    relay = NotifyRelay(given.notify, params.notify_access) if given.notify is not None else None

    def prepare(paths: LifePaths) -> None:
        if relay is not None:
            relay.listen(paths.io)

    if earlier is not None:
        prepare(earlier.paths)
    capsule = earlier or launch(settings, spec, handed, prepare)
    handed.close()
    if not given.is_supervised:  # else all that is said is the service's
        report_start(progress, capsule)
    if relay is not None:
        relay.begin(capsule.facts.root)
        if earlier is not None:  # it said so to the command before
            relay.notify("READY=1")
    status = foreground.stay(
        capsule, list(output), _ready_teller(relay, params.ready, capsule), takes_over=earlier is not None
    )
    if relay is not None:
        relay.close()
    if not given.is_supervised:
        _report_incidents(progress, Incidents(settings.incidents), capsule.facts.life)
    return status


def _ready_teller(relay: NotifyRelay | None, ready: Ready | None, capsule: Capsule) -> Callable[[], None]:
    """Tells systemd once that the service is ready, where that is not the service's own affair."""
    is_notified = relay is None or ready in (None, Ready.SERVICE)

    def look() -> None:
        nonlocal is_notified
        if is_notified or relay is None:
            return
        if ready is Ready.STARTED or listens(capsule):
            relay.notify("READY=1")
            is_notified = True

    return look


def _earlier(settings: Settings, spec: CapsuleSpec) -> Capsule | None:
    """The living capsule that an earlier command of the same supervisor stood for, to be taken over.

    One that ends with its command, which was killed, ends in a moment: that is waited for, and None returned.
    """
    until = time.monotonic() + _EARLIER_LIMIT
    while time.monotonic() < until:
        there = [
            one
            for one in all_lives(settings)
            if one.facts.spec.name == spec.name
            and (one.is_alive or (agent_lives(one.paths) and not one.paths.closed.exists()))
        ]
        for one in there:
            if one.is_alive and not one.facts.is_owned and one.does_what(spec):
                return one
        if not there or any(one.is_alive and not one.facts.is_owned for one in there):
            break  # what else has the name does not end by itself
        time.sleep(_EARLIER_POLL)
    return None


def _report_incidents(progress: Progress, incidents: Incidents, life: str) -> None:
    for incident in reversed(incidents.list()):
        if incident.life == life:
            progress.status(f"Incident {incident.number}: {incident.sighting.summary}.")
