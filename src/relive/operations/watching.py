"""Watching containers and services that run already, and what a container must be created with to be recorded from inside."""

from __future__ import annotations

import os
from pathlib import Path

from pydantic import Field

from relive.config import Settings
from relive.errors import CapsuleExists, PermissionMissing, UsageError
from relive.kernel import procfs
from relive.model.addresses import parse_address
from relive.model.capsule import CaptureWay, check_name
from relive.model.token_scope import Scope
from relive.model.watched import WatchSpec, check_pattern
from relive.operations.micro_choice import of_containers, told_full
from relive.operations.observing import ObservedParams, policy_of
from relive.operations.operation import Effect, Faces, Operation, Result, Route, Tool
from relive.operations.progress import Progress
from relive.operations.recording_way import RecordingWay, choose_way, told_hindrance
from relive.operations.targets import tend
from relive.proxies.ingress.hindrance import packets_hindrance
from relive.watching.engines import engine_named, engine_of
from relive.watching.launch import begin_watch, upstream_of
from relive.watching.life import living_watches
from relive.watching.options import creation_options
from relive.watching.processes.answering import check_url
from relive.watching.processes.port import listening_place, place_of, taken_address
from relive.watching.processes.running import is_python
from relive.watching.state import ContainerState

__all__ = ["WATCH", "CreationOptions", "WatchParams", "Watching", "options_for", "watch"]

_SERVICES = ("pid", "unit")


class WatchParams(ObservedParams):
    """What is watched, and for what."""

    target: str = Field(description="What runs: podman:NAME, docker:NAME, pid:NUMBER or unit:NAME")
    name: str | None = Field(
        default=None, description="What a process or unit is called; default: its own name"
    )
    listen: str | None = Field(
        default=None, description="ADDR:PORT at which a recording proxy listens for the container"
    )
    upstream: str | None = Field(
        default=None,
        description="ADDR:PORT at which the host reaches it; default: its published port, if there is one only",
    )
    signals: bool = Field(default=True, description="Commit at fatal signals, before the process dies")
    health: bool = Field(default=True, description="Run its health check where nobody does in time")
    record: int | None = Field(
        default=None,
        ge=1,
        le=65535,
        description="Its own port, in its own network, whose requests are recorded",
    )
    log: list[Path] = Field(
        default=[],
        description="A file that a service logs to, beside its standard streams; may be given again",
    )
    health_url: str | None = Field(
        default=None, description="A URL that a healthy service answers with a status below 400"
    )
    files: list[Path] = Field(
        default=[],
        description="A file or directory of a service that each commit holds; may be given again",
    )


class Watching(Result):
    """A watch that has begun.

    Attributes:
        missing: sentences on what this watch cannot see, and what would change that.
    """

    target: str
    id: str
    pid: int
    listen: str | None
    inside: bool
    missing: list[str]


def watch(settings: Settings, params: WatchParams, progress: Progress) -> Watching:
    """Watch a container or service, which runs on whatever becomes of the watch.

    Raises:
        UsageError: the target is none, or what is asked for does not fit it.
        TargetUnknown: there is no such container, process or unit.
        CapsuleExists: it is watched already.
        PermissionMissing: the caller is not root.
        ToolMissing, HostIncapable, CapsuleStartFailed: as they say.
    """
    engine, name = engine_of(
        params.target, called=check_name(params.name) if params.name is not None else None
    )
    if engine.name not in _SERVICES:
        _refuse_for_containers(params)
    if os.geteuid() != 0:
        raise PermissionMissing(
            f"watching {params.target} needs root",
            cause=f"this is uid {os.geteuid()}, and only root may trace, commit and record what others run",
            remedy="run it with sudo; root's podman has containers of its own",
        )
    tend(settings, progress)
    state = engine.inspect(name)
    if engine.name in _SERVICES:
        _check_service(settings, state)
    if params.upstream is not None and params.listen is None:
        raise UsageError("--upstream is for --listen", remedy="give both, or neither")
    if params.record is not None and params.listen is not None:
        raise UsageError("--record and --listen are two ways to one recording", remedy="give one of them")
    policy = policy_of(settings, params, None if engine.name in _SERVICES else of_containers)
    if params.listen is None and params.record is None and policy.each_request:
        raise UsageError(
            "--every request is for --listen or --record",
            remedy="give --listen or --record, or another --every",
        )
    if params.record is None and (
        params.capture is CaptureWay.BESIDE or (params.capture and params.listen is None)
    ):
        raise UsageError(f"--capture {params.capture} needs --record", remedy="give the service's own port")
    way = choose_way(
        params.capture,
        has_upstream=params.record is None,
        holds=policy.each_request,
        hindrance=lambda: packets_hindrance(settings.tools_path),
    )
    listen, upstream = _places(params, state, way)
    spec = WatchSpec(
        policy=policy,
        listen=listen,
        upstream=upstream,
        hang_after=params.hang_after,
        patterns=[check_pattern(one) for one in params.log_pattern],
        signals=params.signals,
        health=params.health,
        capture=way.capture,
        stands_in=way.stands_in,
        hindrance=way.hindrance,
        health_url=check_url(params.health_url) if params.health_url is not None else None,
        log_files=[str(_there(path, "--log")) for path in params.log],
        files=[str(_there(path, "--files")) for path in params.files],
    )
    if engine.name in _SERVICES:  # what it logs to is known by now
        state = engine_of(params.target, spec, called=params.name)[0].inspect(name)
    begun = begin_watch(settings, engine, state, spec)
    missing = []
    if listen is None:
        missing.append("Requests are not recorded: --record PORT reads the packets of its port.")
    if way.hindrance is not None:
        missing.append(told_hindrance(way.hindrance))
    if policy.full_because is not None:
        missing.append(told_full(policy.full_because))
    missing += not_seen(state, engine.name)
    if not state.is_running:
        missing.append(f"It does not run ({state.status}); the watch waits for its start.")
    return Watching(
        target=begun.target,
        id=state.id,
        pid=state.pid,
        listen="{}:{}".format(*listen) if listen is not None else None,
        inside=state.has_recorder,
        missing=missing,
    )


def _places(
    params: WatchParams, state: ContainerState, way: RecordingWay
) -> tuple[tuple[str, int] | None, tuple[str, int] | None]:
    """Where clients connect, and where the service listens; raises as ``watch``."""
    if params.listen is not None:
        upstream = parse_address(params.upstream) if params.upstream is not None else upstream_of(state)
        return parse_address(params.listen), upstream
    if params.record is None:
        return None, None
    is_service = state.target is not None
    if way.capture is CaptureWay.BESIDE:
        if not is_service and not state.is_running:  # it will listen where it will have its network
            return ("0.0.0.0", params.record), ("0.0.0.0", params.record)
        place = listening_place(state, params.record)
        return place, place
    if not is_service:
        raise UsageError(
            f"{state.name}: no proxy can take a container's own port",
            cause=way.hindrance or "--capture proxy and --every request need one",
            remedy="use --listen ADDR:PORT, and point clients there",
        )
    return taken_address(state, params.record), place_of(state, params.record)


def _refuse_for_containers(params: WatchParams) -> None:
    if params.name is not None or params.log or params.health_url is not None or params.files:
        raise UsageError(
            "--name, --log, --health-url and --files are for pid: and unit: targets",
            cause="a container has a name, a log, a health check and its files",
            remedy="leave them out",
        )


def _check_service(settings: Settings, state: ContainerState) -> None:
    """Refuse what cannot be watched, while nothing is begun."""
    for watch in living_watches(settings):
        if watch.target == state.target:
            raise CapsuleExists(
                f"{state.target} is watched already",
                cause=f"as {watch.facts.name}",
                remedy=f"`relive stop {watch.facts.name}` ends that watch; what is watched runs on",
            )
    if state.is_running:
        from relive.checkpoint.target import check_dumpable

        check_dumpable(state.pid)


def _there(path: Path, option: str) -> Path:
    """The whole path of a file that is there; raises UsageError."""
    if not path.exists():
        raise UsageError(f"{option}: there is no {path}", remedy="name an existing file or directory")
    return path.resolve()


def not_seen(state: ContainerState, engine: str) -> list[str]:
    """Sentences on what the watch of a container or service cannot see because of how that was started."""
    found = []
    is_service = engine in _SERVICES
    if is_service and state.is_running and any(is_python(pid) for pid in procfs.tree_of(state.pid)):
        found.append(
            "What its Python processes do inside is not recorded, and exceptions are only seen as what they lead to: the recorder "
            "has to be there when a process begins. `relive run` starts a service with it."
        )
    if not is_service and not state.has_recorder:
        words = f"{engine} run $(relive podman-args {_flag(engine)}{state.image}) ..."
        found.append(
            "What its Python processes do is not recorded, and exceptions are only seen as what they lead to: it was "
            f"created without the recorder. `{words}` creates one with it."
        )
    if state.logs == "none":
        found.append(
            "Its output is not kept: standard output and error lead to no file. --log FILE names one that it logs to."
            if is_service
            else "Its output is not kept: it was created with the log driver none. --log-driver names another when it is created."
        )
    return found


def _flag(engine: str) -> str:
    return "" if engine == "podman" else f"--engine {engine} "


WATCH = Operation(
    "watch",
    WatchParams,
    Watching,
    watch,
    Faces(
        cli=("watch",),
        rest=Route(
            "POST",
            "/watches",
            frozenset({Scope.HOST}),
            "Watch a container or service of the server's host, which runs already",
        ),
        mcp=Tool(
            Effect.ADDS,
            "Watch a container or service of this host that runs already: committed, recorded, its failures seen.",
            is_for_host=True,
        ),
    ),
)


class CreationOptions(Result):
    """Words for ``podman run`` or ``podman create``."""

    options: list[str]


def options_for(settings: Settings, image: str, *, engine: str = "podman") -> CreationOptions:
    """What puts the recorder into a container of an image; each call is for one container, since it makes the place of its rings.

    Raises:
        TargetUnknown: the engine does not have the image.
        HostIncapable: there is no place for rings.
    """
    return CreationOptions(options=creation_options(settings, engine_named(engine), image))
