"""``relive run``: start a service in a capsule and stay with it."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import typer

from relive.agent.capsule.supervision import read_supervision
from relive.cli.params_options import from_params
from relive.cli.terminal import AsJson, Terminal
from relive.config import load_settings
from relive.kernel.wait_status import shell_status
from relive.operations.foreground import end_like
from relive.operations.foreground_run import ForegroundParams, check_supervision, run_in_foreground
from relive.operations.running import run as run_detached

__all__ = ["run"]


@from_params(
    ForegroundParams,
    arguments=("command",),
    words={"wait": ("--wait/--no-wait",), "detach": ("--detach", "-d")},
)
def run(params: ForegroundParams, as_json: AsJson = False) -> None:
    """Start a service in a capsule: recorded, committed, watched

    The service gets its own PID, mount and IPC namespaces. Its files are the host's, as without Relive; what it changes
    is followed, so that each commit holds its files as they were. Its output passes through, signals are handed on, and
    the exit status is the service's.
    Should this command die, the service goes on, unless it is --supervised; `relive attach` takes its place, and so does the same
    command when a supervisor starts it again.
    """
    terminal = Terminal(as_json=as_json)
    settings = load_settings()
    given = read_supervision(os.environ, os.getpid(), wanted=False if params.detach else params.supervised)
    check_supervision(params, given)
    if params.detach:
        started = run_detached(settings, params.detached(Path.cwd(), given), terminal)
        terminal.answer(started, started.name)
        return
    output = [sys.stdout.fileno(), sys.stderr.fileno()]
    status = run_in_foreground(settings, params, given, Path.cwd(), output, terminal)
    sys.stdout.flush()
    if status is None:
        raise typer.Exit(128 + signal.SIGKILL)
    raise typer.Exit(end_like(status) if given.is_supervised else shell_status(status))
