"""``relive adopt``: have a unit of systemd run its service under Relive."""

from __future__ import annotations

from typing import Annotated

import typer

from relive.cli.terminal import AsJson, Terminal
from relive.cli.units import DryRun, tell
from relive.config import load_settings
from relive.errors import UsageError
from relive.operations.units import AdoptWish
from relive.operations.units import adopt as write

__all__ = ["adopt"]


def adopt(
    unit: Annotated[str, typer.Argument(help="The unit, such as shop or shop@1.service")],
    name: Annotated[str | None, typer.Option(help="Name of the capsule; default: the unit's")] = None,
    every: Annotated[
        str, typer.Option(help="When to commit: a time such as 30s, or request, start, never")
    ] = "30s",
    listen: Annotated[
        str | None, typer.Option(help="ADDR:PORT at which a recording proxy listens for the service")
    ] = None,
    upstream: Annotated[
        str | None, typer.Option(help="The service's own port (or ADDR:PORT); needs --listen")
    ] = None,
    record_egress: Annotated[
        bool, typer.Option("--record-egress", help="Record at its border what the service asks of others")
    ] = False,
    without_confinement: Annotated[
        bool,
        typer.Option("--without-confinement", help="Let the service run without the unit's sandboxing"),
    ] = False,
    restart: Annotated[
        bool, typer.Option("--restart", help="Reload systemd, and restart the unit if it runs")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace the drop-in also if it was edited")] = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Have a systemd unit run its service under Relive, by a drop-in

    Writes /etc/systemd/system/UNIT.d/50-relive.conf, shows it and changes nothing else. In it ExecStart= runs the same command by
    `relive run`, as the unit's user. `relive release UNIT` removes it.
    """
    if (listen is None) != (upstream is None):
        raise UsageError("--listen and --upstream go together", remedy="give both, or neither")
    wish = AdoptWish(
        unit=unit,
        name=name,
        every=every,
        listen=listen,
        upstream=upstream,
        record_egress=record_egress,
        unconfined=without_confinement,
        force=force,
        restart=restart,
        dry_run=dry_run,
    )
    done = write(load_settings(), wish)
    tell(Terminal(as_json=as_json), done, "is adopted", dry_run=dry_run)
