"""Starting a service in a capsule, where it runs on by itself. Staying with one is in ``foreground_run``."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from threading import Event

from pydantic import Field

from relive.agent.capsule.inherited import InheritedDescriptors
from relive.agent.capsule.launch import launch
from relive.agent.capsule.lives import Capsule
from relive.agent.capsule.readiness import Ready, await_ready
from relive.agent.capsule.sd_notify import INNER_SOCKET, NotifyAccess, NotifyRelay
from relive.config import Settings, given_store_keys
from relive.errors import UsageError
from relive.model.addresses import parse_address
from relive.model.capsule import CapsuleSpec, CaptureWay, EgressWay, FilesWay, check_name, parse_data
from relive.model.commit_policy import parse_every
from relive.model.life_paths import LifePaths
from relive.model.limits import parse_limit
from relive.model.signals import parse_signal
from relive.model.text import is_number
from relive.model.token_scope import Scope
from relive.model.watched import check_pattern
from relive.operations.micro_choice import told_full
from relive.operations.observing import (
    EGRESS,
    RECORD_EGRESS,
    ObservedParams,
    choose_egress,
    policy_of,
)
from relive.operations.operation import Effect, Face, Faces, Only, Operation, Result, Route, Tool
from relive.operations.progress import Progress
from relive.operations.recording_way import RecordingWay, choose_way, told_hindrance
from relive.operations.respawning import tend_capsules
from relive.proxies.ingress.hindrance import packets_hindrance

__all__ = [
    "RUN",
    "RunParams",
    "Running",
    "ServiceParams",
    "check_ports",
    "replace_umask",
    "report_start",
    "run",
    "spec_of",
]

_EGRESS = {
    EgressWay.THROUGH: "What it asks of others is recorded at its border: docs/egress.md says what differs for it.",
    EgressWay.BESIDE: "What it asks of others is recorded beside its way, TLS as it is on the wire.",
}
_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class ServiceParams(ObservedParams):
    """What is started, and how it is observed."""

    command: list[str] = Field(
        min_length=1, max_length=10_000, description="The service and its arguments, after --"
    )
    name: str | None = Field(default=None, description="Name of the capsule; default: the program's")
    upstream: str | None = Field(
        default=None,
        description="The service's own port (or ADDR:PORT), where a proxy is to listen at --listen instead of it",
    )
    memory: str | None = Field(default=None, description="Most memory for the service, such as 512M")
    user: str | None = Field(default=None, description="User the service runs as; default: the caller")
    recorder: bool = Field(default=True, description="Record inside the service's Python processes, too")
    record_egress: bool | None = Field(default=None, description=RECORD_EGRESS)
    egress: EgressWay | None = Field(
        default=None,
        description=f"{EGRESS}; default: through with --record-egress, else beside",
    )
    tls: bool = Field(
        default=True,
        description="With --egress through: open TLS, with a certificate authority of the capsule's own",
    )
    files: FilesWay = Field(
        default=FilesWay.HOST, description="Where what the service writes goes: to the host, or to an overlay"
    )
    data: list[str] = Field(
        default=[],
        description="DIRECTORY=copy or DIRECTORY=exclude: what becomes of large data in commits",
    )
    notify_access: NotifyAccess = Field(
        default=NotifyAccess.MAIN, description="Whose messages are passed on to systemd (sd_notify)"
    )
    ready: Ready | None = Field(
        default=None,
        description="When it is ready: it says so (sd_notify), it was executed, or it listens at its port; default: it tells "
        "systemd itself, and with --detach it listens, or has run for 0.5 s where its port is not known",
    )
    wait: bool = Field(default=True, description="With --detach: return when the service is ready")
    ready_limit: float = Field(
        default=60.0,
        ge=0.1,
        description="With --detach: seconds until it counts as not ready, and runs on",
    )
    stop_signal: str | None = Field(
        default=None, description="The signal by which `relive stop` asks the service to end; default: TERM"
    )
    daemons: bool = Field(
        default=False,
        description="The command ends and leaves daemons: keep a process at the head of all of them",
    )
    limit: list[str] = Field(
        default=[],
        description="A limit of the service, NAME=SOFT:HARD as in nofile=1024:65536; may be given again",
    )


class RunParams(ServiceParams):
    """As who has no terminal asks for it; it runs as with --detach. The CLI hands its own directory and environment on."""

    directory: Path = Field(default=Path("/"), description="Where the service runs")
    environment: dict[str, str] = Field(
        default={"PATH": _PATH}, max_length=10_000, description="The service's whole environment"
    )


class Running(Result):
    """A service that runs; ``replay_lacks``: a sentence on what a replay of it will lack, None: nothing that is known."""

    name: str
    life: str
    pid: int
    replay_lacks: str | None


def run(settings: Settings, params: RunParams, progress: Progress) -> Running:
    """Start a service that runs on by itself, and wait until it is ready unless that is not wanted.

    The calling process's umask becomes the service's, and is 022 afterwards.

    Raises:
        UsageError: what is asked for cannot be meant.
        CapsuleExists, CapsuleStartFailed, HostIncapable: it was not started.
        CapsuleNotReady: it was, and runs on, but was not ready in time.
    """
    check_ports(params)
    spec = spec_of(settings, params, params.directory, params.environment)
    limits = tuple(parse_limit(text) for text in params.limit)
    tend_capsules(settings)
    capsule = _run_apart(settings, spec, InheritedDescriptors(umask=replace_umask(), limits=limits), params)
    lacks = report_start(progress, capsule)
    return Running(name=spec.name, life=capsule.facts.life, pid=capsule.lead, replay_lacks=lacks)


def check_ports(params: ServiceParams) -> None:
    """Raises UsageError where what is said of ports cannot be meant."""
    if params.listen is None:
        for given, option in ((params.upstream, "--upstream"), (params.capture, "--capture")):
            if given is not None:
                raise UsageError(f"{option} needs --listen", remedy="say at which ADDR:PORT clients connect")
        if params.ready is Ready.LISTENING:
            raise UsageError("--ready listening needs --listen", remedy="give the service's own ADDR:PORT")
    else:
        _way(params, lambda: None)
    choose_egress(params.record_egress, params.egress)


def _way(params: ServiceParams, hindrance: Callable[[], str | None]) -> RecordingWay:
    holds = parse_every(params.every).each_request
    return choose_way(
        params.capture, has_upstream=params.upstream is not None, holds=holds, hindrance=hindrance
    )


def spec_of(
    settings: Settings, params: ServiceParams, directory: Path, environment: Mapping[str, str]
) -> CapsuleSpec:
    """The capsule that is asked; raises UsageError."""
    way, listen, upstream = RecordingWay(CaptureWay.PROXY), None, None
    if params.listen is not None:
        way = _way(params, lambda: packets_hindrance(settings.tools_path))
        listen, upstream = _places(params.listen, params.upstream, way)
    return CapsuleSpec(
        name=check_name(params.name or Path(params.command[0]).name),
        command=params.command,
        directory=str(directory),
        environment=dict(environment),
        policy=policy_of(settings, params),
        listen=listen,
        upstream=upstream,
        capture=way.capture,
        stands_in=way.stands_in,
        hindrance=way.hindrance,
        hang_after=params.hang_after,
        memory=_parse_size(params.memory) if params.memory else None,
        user=params.user,
        inside=params.recorder,
        **choose_egress(params.record_egress, params.egress, is_sealed=_is_sealed(settings))._asdict(),
        tls=params.tls,
        files=params.files,
        data=parse_data(params.data),
        stop_signal=parse_signal(params.stop_signal) if params.stop_signal is not None else None,
        daemons=params.daemons,
        patterns=[check_pattern(one) for one in params.log_pattern],
    )


def _places(listen: str, upstream: str | None, way: RecordingWay) -> tuple[tuple[str, int], tuple[str, int]]:
    """Where clients connect, and where the service listens."""
    if upstream is not None:
        return parse_address(listen), parse_address(upstream)
    host, port = parse_address(listen, default_host="0.0.0.0")  # whichever address it listens at
    if not way.stands_in:
        return (host, port), (host, port)
    taken = _ipv4(host)
    return (taken, port), ("127.0.0.1" if taken == "0.0.0.0" else taken, port)


def _ipv4(host: str) -> str:
    """At which connections can be taken, ``0.0.0.0`` for all; raises UsageError where there is none."""
    if host == "::":
        return "0.0.0.0"
    try:
        return str(socket.getaddrinfo(host, None, socket.AF_INET)[0][4][0])
    except OSError as error:
        raise UsageError(
            f"no proxy can take connections to {host}",
            cause="only those to an IPv4 address can be taken from a service that listens itself",
            remedy="give an IPv4 address, or --upstream for a proxy at an address of its own",
        ) from error


def _is_sealed(settings: Settings) -> bool:
    return bool(given_store_keys()) or (settings.home / "keys" / "store.key").exists()


def replace_umask() -> int:
    """The caller's, which is the service's; Relive's own files must be seen by whoever the service runs as."""
    return os.umask(0o022)


def report_start(progress: Progress, capsule: Capsule) -> str | None:
    """Say what runs, and what a replay of it will lack; that is returned, too."""
    from relive.check.lacking import replay_lacks

    facts = capsule.facts
    progress.status(f"{facts.spec.name} runs as process {capsule.lead}, life {facts.life}.")
    if facts.egress is not None and not facts.spec.egress_if_possible:
        progress.status(_EGRESS[facts.egress])
    if facts.unrecorded is not None:
        progress.status(f"What it asks of others is not recorded: {facts.unrecorded}.")
    if facts.spec.hindrance is not None:
        progress.status(told_hindrance(facts.spec.hindrance))
    if facts.spec.policy.full_because is not None:
        progress.status(told_full(facts.spec.policy.full_because))
    lacks = replay_lacks(
        facts.spec.command,
        inside=facts.spec.inside,
        border=facts.egress is not None,
        tls=facts.spec.opens_tls,
    )
    if lacks is not None:
        progress.status(lacks)
    return lacks


def _run_apart(
    settings: Settings, spec: CapsuleSpec, handed: InheritedDescriptors, params: ServiceParams
) -> Capsule:
    """Start a service that runs on without this process, and wait until it is ready, if that is wanted."""
    relay = None
    if params.ready is Ready.SERVICE and params.wait:
        relay = NotifyRelay(None, params.notify_access)
        spec = spec.model_copy(
            update={"environment": spec.environment | {"NOTIFY_SOCKET": str(INNER_SOCKET)}}
        )

    def prepare(paths: LifePaths) -> None:
        if relay is not None:
            relay.listen(paths.io)

    try:
        capsule = launch(settings, spec, handed, prepare)
        if relay is not None:
            relay.begin(capsule.facts.root)
        if params.wait:
            is_ready = relay.is_ready if relay is not None else Event()
            await_ready(capsule, params.ready, is_ready, params.ready_limit)
    finally:
        if relay is not None:
            relay.close()
    return capsule


def _parse_size(text: str) -> int:
    unit = text[-1:].upper()
    digits = text[:-1] if unit in _UNITS else text
    if not is_number(digits) or int(digits) == 0:
        raise UsageError(f"--memory cannot be {text!r}", remedy="write bytes, or a number with K, M or G")
    return int(digits) * _UNITS.get(unit, 1)


RUN = Operation(
    "run",
    RunParams,
    Running,
    run,
    Faces(
        cli=("run",),
        rest=Route(
            "POST",
            "/capsules",
            frozenset({Scope.HOST}),
            "Start a service in a capsule on the server's host; it runs on by itself",
        ),
        mcp=Tool(
            Effect.ADDS,
            "Start a service in a capsule on this host: recorded, committed, watched. It runs on by itself.",
            is_for_host=True,
            name="start_service",  # `run` shows a run
        ),
        only=(
            Only(
                ("supervised", "signal_all", "detach"),
                frozenset({Face.CLI}),
                "they are about the process that asks; elsewhere a service runs on by itself",
            ),
            Only(
                ("directory", "environment"),
                frozenset({Face.REST, Face.MCP}),
                "the CLI hands its own on",
            ),
        ),
    ),
)
