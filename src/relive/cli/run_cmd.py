"""``relive run``: start a service in a capsule and stay with it."""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from threading import Event
from typing import Annotated

import typer

from relive.agent.capsule.agent_process import agent_lives
from relive.agent.capsule.inherited import Handed
from relive.agent.capsule.launch import launch
from relive.agent.capsule.lives import Capsule, all_lives
from relive.agent.capsule.readiness import Ready, await_ready, listens
from relive.agent.capsule.sd_notify import INNER_SOCKET, NotifyAccess, NotifyRelay
from relive.agent.capsule.supervision import Supervision, read_supervision
from relive.agent.failures.sightings import shell_status
from relive.cli.terminal import AsJson, Terminal
from relive.config import Settings, load_settings
from relive.errors import UsageError
from relive.incidents.incidents import Incidents
from relive.model.capsule import (
    CapsuleSpec,
    FilesWay,
    LifePaths,
    check_name,
    parse_address,
    parse_data,
    parse_every,
)
from relive.model.limits import parse_limit
from relive.model.signals import parse_signal
from relive.model.text import is_number
from relive.model.watched import check_pattern
from relive.operations.foreground import Foreground, end_like
from relive.operations.respawning import tend_capsules

__all__ = ["run"]

_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_EARLIER_LIMIT = 10.0  # [s] for the life before, whose command was killed, to end
_EARLIER_POLL = 0.02  # [s]


def run(
    command: Annotated[list[str], typer.Argument(help="The service and its arguments, after --")],
    name: Annotated[str | None, typer.Option(help="Name of the capsule; default: the program's")] = None,
    every: Annotated[
        str, typer.Option(help="When to commit: a time such as 30s, or request, start, never")
    ] = "30s",
    pause_limit: Annotated[
        float | None,
        typer.Option(
            help="Seconds; a commit that is expected to stop it for longer is not taken by the clock; 0: each is; default: 1",
            min=0,
        ),
    ] = None,
    pause_share: Annotated[
        float | None,
        typer.Option(
            help="Percent of the time that it may stand still for commits by the clock, which come seldomer then; default: 1",
            min=0.001,
            max=100,
        ),
    ] = None,
    listen: Annotated[
        str | None, typer.Option(help="ADDR:PORT at which a recording proxy listens for the service")
    ] = None,
    upstream: Annotated[
        str | None, typer.Option(help="The service's own port (or ADDR:PORT); needs --listen")
    ] = None,
    hang_after: Annotated[
        float | None, typer.Option(help="Seconds without an answer that count as a hang", min=0.1)
    ] = 30.0,
    memory: Annotated[str | None, typer.Option(help="Most memory for the service, such as 512M")] = None,
    user: Annotated[str | None, typer.Option(help="User the service runs as; default: the caller")] = None,
    recorder: Annotated[bool, typer.Option(help="Record inside the service's Python processes, too")] = True,
    record_egress: Annotated[
        bool,
        typer.Option(
            "--record-egress", help="Record at its border what the service asks of others, in any language"
        ),
    ] = False,
    tls: Annotated[
        bool,
        typer.Option(
            help="With --record-egress: open TLS, with a certificate authority of the capsule's own"
        ),
    ] = True,
    files: Annotated[
        FilesWay, typer.Option(help="Where what the service writes goes: to the host, or to an overlay")
    ] = FilesWay.HOST,
    data: Annotated[
        list[str] | None,
        typer.Option(help="DIRECTORY=copy or DIRECTORY=exclude: what becomes of large data in commits"),
    ] = None,
    log_pattern: Annotated[
        list[str] | None,
        typer.Option(help="A line of its output that matches this is a failure; may be given again"),
    ] = None,
    supervised: Annotated[
        bool | None,
        typer.Option(
            help="Stand for the service to a supervisor: they end together, in the same way; "
            "default: if systemd or supervisord started it, or as process 1"
        ),
    ] = None,
    notify_access: Annotated[
        NotifyAccess, typer.Option(help="Whose messages are passed on to systemd (sd_notify)")
    ] = NotifyAccess.MAIN,
    ready: Annotated[
        Ready | None,
        typer.Option(
            help="When it is ready: it says so (sd_notify), it was executed, or it listens at --upstream; default: it tells "
            "systemd itself, and with --detach it listens, or has run for 0.5 s where its port is not known"
        ),
    ] = None,
    wait: Annotated[
        bool, typer.Option("--wait/--no-wait", help="With --detach: return when the service is ready")
    ] = True,
    ready_limit: Annotated[
        float, typer.Option(help="With --detach: seconds until it counts as not ready, and runs on", min=0.1)
    ] = 60.0,
    signal_all: Annotated[
        str | None,
        typer.Option(
            help="A signal, such as TERM, that is handed on to each process of the service, not only the first"
        ),
    ] = None,
    stop_signal: Annotated[
        str | None,
        typer.Option(help="The signal by which `relive stop` asks the service to end; default: TERM"),
    ] = None,
    daemons: Annotated[
        bool,
        typer.Option(
            "--daemons", help="The command ends and leaves daemons: keep a process at the head of all of them"
        ),
    ] = False,
    limit: Annotated[
        list[str] | None,
        typer.Option(
            help="A limit of the service, NAME=SOFT:HARD as in nofile=1024:65536; may be given again"
        ),
    ] = None,
    detach: Annotated[
        bool, typer.Option("--detach", "-d", help="Return as soon as the service is ready; it runs on")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Start a service in a capsule: recorded, committed, watched

    The service gets its own PID, mount and IPC namespaces. Its files are the host's, as without Relive; what it changes
    is followed, so that each commit holds its files as they were. Its output passes through, signals are handed on, and
    the exit status is the service's.
    Should this command die, the service goes on, unless it is --supervised; `relive attach` takes its place, and so does the same
    command when a supervisor starts it again.
    """
    terminal = Terminal(as_json=as_json)
    if (listen is None) != (upstream is None):
        raise UsageError("--listen and --upstream go together", remedy="give both, or neither")
    settings = load_settings()
    given = read_supervision(os.environ, os.getpid(), wanted=False if detach else supervised)
    _check_supervision(given, ready, memory, upstream, detach=detach, supervised=supervised)
    to_all = parse_signal(signal_all) if signal_all is not None else None
    limits = tuple(parse_limit(text) for text in limit or [])
    capsule_name = check_name(name or Path(command[0]).name)
    tend_capsules(settings, only=capsule_name if given.is_supervised else None)
    spec = CapsuleSpec(
        name=capsule_name,
        command=command,
        directory=str(Path.cwd()),
        environment=given.environment,
        policy=parse_every(every).limited(
            settings.pause_limit if pause_limit is None else pause_limit,
            settings.pause_share if pause_share is None else pause_share,
        ),
        listen=parse_address(listen) if listen else None,
        upstream=parse_address(upstream) if upstream else None,
        hang_after=hang_after,
        memory=_parse_size(memory) if memory else None,
        user=user,
        inside=recorder,
        record_egress=record_egress,
        tls=tls,
        files=files,
        data=parse_data(data or []),
        stop_signal=parse_signal(stop_signal) if stop_signal is not None else None,
        daemons=daemons,
        patterns=[check_pattern(one) for one in log_pattern or []],
    )
    if detach:
        handed = Handed(umask=_take_umask(), limits=limits)
        capsule = _run_apart(settings, spec, handed, notify_access, ready, ready_limit if wait else 0)
        lacks = _tell_start(terminal, capsule)
        value = {"name": spec.name, "life": capsule.facts.life, "pid": capsule.lead, "replay_lacks": lacks}
        terminal.answer(value, spec.name)
        return
    status = _stay(terminal, settings, spec, given, notify_access, ready, limits, to_all)
    if status is None:
        raise typer.Exit(128 + signal.SIGKILL)
    raise typer.Exit(end_like(status) if given.is_supervised else shell_status(status))


def _tell_start(terminal: Terminal, capsule: Capsule) -> str | None:
    """Say what runs, and what a replay of it will lack; that is returned, too."""
    from relive.check.lacking import replay_lacks

    facts = capsule.facts
    terminal.status(f"{facts.spec.name} runs as process {capsule.lead}, life {facts.life}.")
    if facts.spec.record_egress:
        terminal.status(
            "What it asks of others is recorded at its border: docs/egress.md says what differs for it."
        )
    lacks = replay_lacks(facts.spec.command, inside=facts.spec.inside, border=facts.spec.record_egress)
    if lacks is not None:
        terminal.status(lacks)
    return lacks


def _run_apart(
    settings: Settings,
    spec: CapsuleSpec,
    handed: Handed,
    access: NotifyAccess,
    ready: Ready | None,
    limit: float,
) -> Capsule:
    """Start a service that runs on without this command, and wait until it is ready; ``limit``: seconds, 0: do not wait."""
    relay = None
    if ready is Ready.SERVICE and limit:
        relay = NotifyRelay(None, access)
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
        if limit:
            await_ready(capsule, ready, relay.is_ready if relay is not None else Event(), limit)
    finally:
        if relay is not None:
            relay.close()
    return capsule


def _check_supervision(
    given: Supervision,
    ready: Ready | None,
    memory: str | None,
    upstream: str | None,
    *,
    detach: bool,
    supervised: bool | None,
) -> None:
    if detach and supervised:
        raise UsageError("--detach and --supervised exclude each other")
    if given.is_unit and memory is not None:
        raise UsageError(
            "--memory cannot be used in a systemd unit",
            cause="systemd limits the memory of a unit's processes by a control group of its own",
            remedy="write MemoryMax= in the unit",
        )
    if ready is Ready.LISTENING and upstream is None:
        raise UsageError("--ready listening needs --upstream", remedy="give --listen and --upstream")


def _take_umask() -> int:
    """The caller's, which is the service's; Relive's own files must be seen by whoever the service runs as."""
    return os.umask(0o022)


def _stay(
    terminal: Terminal,
    settings: Settings,
    spec: CapsuleSpec,
    given: Supervision,
    access: NotifyAccess,
    ready: Ready | None,
    limits: tuple[tuple[str, int, int], ...],
    to_all: int | None,
) -> int | None:
    """Start the service and show it until it has ended; its raw wait status, None where nobody could note it."""
    ours, line = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    handed = Handed(
        line=line.fileno() if given.is_supervised else None,
        sockets=given.sockets,
        own_pid=tuple(given.own_pid),
        umask=_take_umask(),
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
    relay = NotifyRelay(given.notify, access) if given.notify is not None else None

    def prepare(paths: LifePaths) -> None:
        if relay is not None:
            relay.listen(paths.io)

    if earlier is not None:
        prepare(earlier.paths)
    capsule = earlier or launch(settings, spec, handed, prepare)
    handed.close()
    if not given.is_supervised:  # else all that is said is the service's
        _tell_start(terminal, capsule)
    if relay is not None:
        relay.begin(capsule.facts.root)
        if earlier is not None:  # it said so to the command before
            relay.say("READY=1")
    status = foreground.stay(
        capsule,
        [sys.stdout.fileno(), sys.stderr.fileno()],
        _ready_teller(relay, ready, capsule),
        takes_over=earlier is not None,
    )
    if relay is not None:
        relay.close()
    if not given.is_supervised:
        _tell_incidents(terminal, Incidents(settings.incidents), capsule.facts.life)
    sys.stdout.flush()
    return status


def _ready_teller(relay: NotifyRelay | None, ready: Ready | None, capsule: Capsule) -> Callable[[], None]:
    """Tells systemd once that the service is ready, where that is not the service's own affair."""
    told = relay is None or ready in (None, Ready.SERVICE)

    def look() -> None:
        nonlocal told
        if told or relay is None:
            return
        if ready is Ready.STARTED or listens(capsule):
            relay.say("READY=1")
            told = True

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


def _parse_size(text: str) -> int:
    unit = text[-1:].upper()
    digits = text[:-1] if unit in _UNITS else text
    if not is_number(digits) or int(digits) == 0:
        raise UsageError(f"--memory cannot be {text!r}", remedy="write bytes, or a number with K, M or G")
    return int(digits) * _UNITS.get(unit, 1)


def _tell_incidents(terminal: Terminal, incidents: Incidents, life: str) -> None:
    for incident in reversed(incidents.list()):
        if incident.life == life:
            terminal.status(f"Incident {incident.number}: {incident.sighting.summary}.")
