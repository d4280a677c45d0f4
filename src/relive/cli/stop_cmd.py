"""``relive stop``: end a branch, a capsule's service, or a watch."""

from __future__ import annotations

from typing import Annotated

import typer

from relive.agent.capsule.stopping import STOP_LIMIT
from relive.cli.terminal import AsJson, Terminal
from relive.config import load_settings
from relive.model.signals import parse_signal
from relive.operations.branches import stop as stop_all

__all__ = ["stop"]


def stop(
    names: Annotated[
        list[str] | None,
        typer.Argument(help="Branches (ids), capsules (names), or what is watched (targets, names)"),
    ] = None,
    all_branches: Annotated[
        bool, typer.Option("--all", help="All branches, also those that have ended")
    ] = False,
    signal: Annotated[
        str | None,
        typer.Option(
            help="The signal by which a capsule's service is asked to end; default: its --stop-signal, or TERM"
        ),
    ] = None,
    timeout: Annotated[
        float,
        typer.Option(help="Seconds until what is left of a capsule's service is killed; 0: at once", min=0),
    ] = STOP_LIMIT,
    as_json: AsJson = False,
) -> None:
    """End branches and remove what was theirs; end a capsule's service

    A service's first process gets the stop signal, then what it leaves gets SIGTERM, and what is left after the timeout is killed.
    The command returns when all of it has ended: the name and the port are free. Stopping what has ended is no error.
    Of what `relive watch` was told only the watch is ended: the container, process or unit runs on.
    """
    terminal = Terminal(as_json=as_json)
    number = parse_signal(signal) if signal is not None else None
    done = stop_all(
        load_settings(), names or [], terminal, every_branch=all_branches, number=number, limit=timeout
    )
    terminal.answer(done, "\n".join(done.stopped) or "nothing to stop")
