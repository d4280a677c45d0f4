"""``relive run``: start a service in a capsule and stay with it."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from relive.agent.asking import ask_agent
from relive.agent.launch import launch
from relive.agent.lives import Capsule
from relive.agent.sightings import shell_status
from relive.agent.tending import agent_is_alive, tend_capsules
from relive.cli.terminal import AsJson, Terminal
from relive.config import load_settings
from relive.errors import ReliveError, UsageError
from relive.model.capsule import CapsuleSpec, FilesWay, check_name, parse_address, parse_data, parse_every
from relive.model.text import is_number
from relive.store.incidents import Incidents

__all__ = ["run"]

_FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
_POLL_MS = 50
_AGENT_LIMIT = 30.0  # [s] for the agent to write down how the service ended
_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def run(
    command: Annotated[list[str], typer.Argument(help="The service and its arguments, after --")],
    name: Annotated[str | None, typer.Option(help="Name of the capsule; default: the program's")] = None,
    every: Annotated[
        str, typer.Option(help="When to commit: a time such as 30s, or request, start, never")
    ] = "30s",
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
    detach: Annotated[
        bool, typer.Option("--detach", "-d", help="Return at once; the service runs on")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Start a service in a capsule: recorded, committed, watched

    The service gets its own PID, mount and IPC namespaces. Its files are the host's, as without Relive; what it changes
    is followed, so that each commit holds its files as they were. Its output passes through, signals are handed on, and
    the exit status is the service's.
    Should this command die, the service goes on.
    """
    terminal = Terminal(as_json=as_json)
    if (listen is None) != (upstream is None):
        raise UsageError("--listen and --upstream go together", remedy="give both, or neither")
    settings = load_settings()
    tend_capsules(settings)
    spec = CapsuleSpec(
        name=check_name(name or Path(command[0]).name),
        command=command,
        directory=str(Path.cwd()),
        environment=dict(os.environ),
        policy=parse_every(every),
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
    )
    capsule = launch(settings, spec)
    facts = capsule.facts
    terminal.status(f"{spec.name} runs as process {facts.root}, life {facts.life}.")
    if record_egress:
        terminal.status(
            "What it asks of others is recorded at its border: docs/egress.md says what differs for it."
        )
    if detach:
        terminal.answer({"name": spec.name, "life": facts.life, "pid": facts.root}, spec.name)
        return
    status = _Viewer(capsule).stay()
    _tell_incidents(terminal, Incidents(settings.incidents), facts.life)
    raise typer.Exit(status)


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


class _Viewer:
    """Passes the service's output through and signals on, until it has ended."""

    def __init__(self, capsule: Capsule) -> None:
        self._capsule = capsule
        self._offsets = dict.fromkeys(capsule.paths.logs, 0)
        self._streams = dict(zip(capsule.paths.logs, (sys.stdout.buffer, sys.stderr.buffer), strict=True))

    def stay(self) -> int:
        """Returns the exit status that the service's end means for a shell."""
        for number in _FORWARDED:
            signal.signal(number, self._forward)
        handle = os.pidfd_open(self._capsule.facts.init) if self._capsule.is_alive else None
        while handle is not None:
            poller = select.poll()
            poller.register(handle, select.POLLIN)
            ended = poller.poll(_POLL_MS)
            self._pass_output()
            if ended:
                break
            if not agent_is_alive(self._capsule) and self._capsule.is_alive:
                with contextlib.suppress(ReliveError):
                    tend_capsules(load_settings())
        self._pass_output()
        until = time.monotonic() + _AGENT_LIMIT
        while agent_is_alive(self._capsule) and time.monotonic() < until:
            time.sleep(_POLL_MS / 1000)
        status = self._capsule.wait_status
        return shell_status(status) if status is not None else 128 + signal.SIGKILL

    def _forward(self, number: int, _frame: object) -> None:
        if number in _ENDING:
            with contextlib.suppress(ReliveError):
                ask_agent(self._capsule.paths.agent_socket, {"op": "stopping"}, limit=2)
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._capsule.facts.root, number)

    def _pass_output(self) -> None:
        for log, offset in self._offsets.items():
            with log.open("rb") as file:
                file.seek(offset)
                while data := file.read(1 << 16):
                    self._streams[log].write(data)
                    self._offsets[log] += len(data)
            with contextlib.suppress(BrokenPipeError):
                self._streams[log].flush()
