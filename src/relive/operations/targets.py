"""Targets: the capsules that run, and the containers and services that are watched; whether each is protected."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Sequence
from typing import Any

from relive.agent.capsule.lives import Capsule, all_lives, living_capsules
from relive.agent.control.client import ask_agent
from relive.config import Settings
from relive.errors import AgentUnreachable, RecordingError, TargetUnknown
from relive.kernel import procfs
from relive.model.capsule import CaptureWay, EgressWay
from relive.model.life_paths import LifePaths
from relive.model.pace import PaceState
from relive.model.protection import Trouble
from relive.operations.operation import Result
from relive.operations.progress import Progress
from relive.operations.recording_way import told_hindrance
from relive.operations.respawning import tend_capsules
from relive.recording.layout import STATE_OFF, STATE_RECORDING
from relive.recording.reader import Recording
from relive.watching.life import Watch, living_watches
from relive.watching.timestamps import moment

__all__ = ["RunningTarget", "list_targets", "named_targets", "require_known", "tend"]

_STATUS_LIMIT = 2.0  # [s]
_RECORDING: dict[int | None, str] = {STATE_RECORDING: "on", STATE_OFF: "off"}
_KINDS = {"pid": "process", "unit": "unit"}


class RunningTarget(Result):
    """A capsule that runs, or a container or service that is watched.

    Attributes:
        kind: "capsule", "container", "process" or "unit".
        name: of a watch, its target; called: what its commits and incidents are filed under.
        pid: of its service, on the host, 0 where it does not run; listen: HOST:PORT at which its clients are recorded, if they are.
        capture: "beside" where their requests are recorded from packets, "proxy" where one is in their way, None: they are not.
        recording: "on"; "off" while there is no room on the disk, and requests are answered unrecorded; "no-proxy" while none runs;
            None: its requests are not recorded.
        egress: how what it asks of others is recorded; None: it is not.
        pace: how often it is committed by the clock; None: it is not, or not yet.
        notes: what to know of it, in sentences; mostly none.
        troubles: of what protects it (commits, the watch for failures, ...), the oldest first; none: it is protected.
    """

    kind: str = "capsule"
    name: str
    called: str = ""
    life: str
    pid: int
    listen: str | None
    capture: CaptureWay | None = None
    recording: str | None = None
    egress: EgressWay | None = None
    command: list[str]
    started_wall_ns: int
    pace: PaceState | None = None
    notes: Sequence[str] = ()
    troubles: tuple[Trouble, ...] = ()


def tend(settings: Settings, progress: Progress) -> None:
    """Give capsules whose agent has died a new one; every operation that looks at capsules or what they keep begins so."""
    for name in tend_capsules(settings):
        progress.status(f"The agent of {name} had died; it has a new one.")


def list_targets(settings: Settings, progress: Progress) -> list[RunningTarget]:
    """The capsules that run, then what is watched; of each the oldest first."""
    tend(settings, progress)
    capsules = [_capsule(one) for one in living_capsules(settings)]
    return capsules + [_watched(one) for one in living_watches(settings)]


def _capsule(one: Capsule) -> RunningTarget:
    facts, pace, status = one.facts, _pace(one.paths), _status(one.paths)
    notes = _notes(facts.spec.name, pace, facts.spec.hindrance, status)
    if facts.unrecorded is not None:
        notes.append(f"What it asks of others is not recorded: {facts.unrecorded}.")
    if len(one.strays) > 1:
        notes.append(
            f"Not committed: its first process has ended and left {len(one.strays)} daemons, and a commit is of one tree. "
            "`relive run --daemons` keeps one process at the head of them."
        )
    return RunningTarget(
        name=facts.spec.name,
        called=facts.spec.name,
        life=one.paths.directory.name,
        pid=one.lead if procfs.exists(one.lead) else next(iter(one.heads()), 0),
        listen=_address(facts.spec.listen),
        capture=facts.spec.capture if facts.spec.listen is not None else None,
        recording=_recording(one.paths) if facts.spec.listen is not None else None,
        egress=facts.egress,
        command=list(facts.spec.command),
        started_wall_ns=facts.started_wall_ns,
        pace=pace,
        notes=notes,
        troubles=_troubles(status),
    )


def _pace(paths: LifePaths) -> PaceState | None:
    try:
        return PaceState.model_validate_json(paths.pace.read_bytes())
    except (OSError, ValueError):
        return None


def named_targets(settings: Settings, names: Collection[str], progress: Progress) -> list[RunningTarget]:
    """Those of ``list_targets`` that have one of these names, or all of them without names.

    Raises:
        TargetUnknown: nothing runs under one of the names; a service that has ended is not protected either.
    """
    found = list_targets(settings, progress)
    missing = [name for name in names if not any(name in (one.name, one.called) for one in found)]
    if missing:
        raise TargetUnknown(
            f"nothing called {missing[0]!r} runs under Relive",
            remedy="`relive ps` lists what does; `relive log` what was committed before",
        )
    return [one for one in found if not names or one.name in names or one.called in names]


def require_known(settings: Settings, name: str) -> None:
    """Raises TargetUnknown where nothing was run or is watched under that name, and no commit or incident of it is left."""
    # Who only lists what runs imports neither.
    from relive.incidents.incidents import Incidents
    from relive.store import Store

    is_known = (
        any(one.facts.spec.name == name for one in all_lives(settings))
        or any(name in (one.target, one.facts.name) for one in living_watches(settings))
        or bool(Store(settings.store).log(name, 1))
        or bool(Incidents(settings.incidents).list(name))
    )
    if not is_known:
        raise TargetUnknown(
            f"nothing called {name!r} is known to Relive",
            cause="it has no commits and no incidents, and nothing was run or is watched under that name",
            remedy="`relive ps` lists what runs; `relive log` what was committed",
        )


def _watched(watch: Watch) -> RunningTarget:
    facts, pace, status = watch.facts, _pace(watch.paths), _status(watch.paths)
    return RunningTarget(
        kind=_KINDS.get(facts.engine, "container"),
        name=watch.target,
        called=facts.name,
        life=facts.id,
        pid=int(status.get("pid", 0)),
        listen=_address(facts.spec.listen),
        capture=facts.spec.capture if facts.spec.listen is not None else None,
        recording=_recording(watch.paths) if facts.spec.listen is not None else None,
        command=facts.command,
        started_wall_ns=moment(facts.began),
        pace=pace,
        notes=_notes(watch.target, pace, facts.spec.hindrance, status),
        troubles=_troubles(status),
    )


def _recording(paths: LifePaths) -> str:
    state: int | None = None
    with contextlib.suppress(RecordingError):
        cursor = Recording(paths.recording).cursor()
        state = cursor.state if cursor is not None else None
    return _RECORDING.get(state, "no-proxy")


def _status(paths: LifePaths) -> dict[str, Any]:
    """What the agent says of itself, or that it says nothing."""
    try:
        return ask_agent(paths.agent_socket, {"op": "status"}, limit=_STATUS_LIMIT)
    except AgentUnreachable as error:
        return {"troubles": [Trouble.of("agent", None, 1, error)]}


def _troubles(status: dict[str, Any]) -> tuple[Trouble, ...]:
    # An agent of an older Relive knows of none.
    return tuple(Trouble.model_validate(one) for one in status.get("troubles", ()))


def _notes(name: str, pace: PaceState | None, hindrance: str | None, status: dict[str, Any]) -> list[str]:
    notes = pace.notes(name) if pace is not None else []
    if hindrance is not None:
        notes.append(told_hindrance(hindrance))
    if unframed := status.get("unframed"):
        those = f"{unframed} connection{'s' if unframed != 1 else ''} carried no HTTP/1: recorded as bytes"
        notes.append(f"{those}; no request is told apart, committed before, or becomes an incident.")
    if gaps := status.get("gaps"):
        notes.append(
            f"The recording of requests is incomplete: packets are missing at {gaps} place{'s' if gaps != 1 else ''}."
        )
    return notes


def _address(pair: tuple[str, int] | None) -> str | None:
    return "{}:{}".format(*pair) if pair is not None else None
