"""``relive attach``: take the place of the ``relive run`` that started a service."""

from __future__ import annotations

import os
import signal
import sys
from typing import Annotated

import typer

from relive.agent.capsule.lives import find_capsule
from relive.agent.capsule.supervision import read_supervision
from relive.config import load_settings
from relive.kernel.wait_status import shell_status
from relive.operations.foreground import Foreground, end_like
from relive.operations.respawning import tend_capsules

__all__ = ["attach"]


def attach(
    name: Annotated[str, typer.Argument(help="A running capsule")],
    hands_on: Annotated[
        bool,
        typer.Option(
            "--signals/--no-signals",
            help="Hand signals on to the service; without, they end this command alone",
        ),
    ] = True,
    supervised: Annotated[
        bool | None,
        typer.Option(
            help="Stand for the service to a supervisor; default: if systemd or supervisord started it"
        ),
    ] = None,
) -> None:
    """Take over a running capsule: its output from now on, its signals, its end

    For a service that was started with `--detach`, or whose `relive run` was killed. The exit status is the service's. Should this
    command die, the service goes on, and can be attached to again.
    """
    settings = load_settings()
    tend_capsules(settings, only=name)
    capsule = find_capsule(settings, name)
    given = read_supervision(os.environ, os.getpid(), wanted=supervised)
    foreground = Foreground(
        settings, is_supervised=given.is_supervised, to_all=None, line=None, hands_on=hands_on
    )
    status = foreground.stay(
        capsule, [sys.stdout.fileno(), sys.stderr.fileno()], lambda: None, takes_over=True
    )
    sys.stdout.flush()
    if status is None:
        raise typer.Exit(128 + signal.SIGKILL)
    raise typer.Exit(end_like(status) if given.is_supervised else shell_status(status))
