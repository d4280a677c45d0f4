"""``relive release``: take back what ``relive adopt`` wrote."""

from __future__ import annotations

from typing import Annotated

import typer

from relive.cli.terminal import AsJson, Terminal
from relive.cli.units import DryRun, tell
from relive.operations.units import ReleaseWish
from relive.operations.units import release as remove

__all__ = ["release"]


def release(
    unit: Annotated[str, typer.Argument(help="The unit that `relive adopt` was told")],
    restart: Annotated[
        bool, typer.Option("--restart", help="Reload systemd, and restart the unit if it runs")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Remove the drop-in also if it was edited")] = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Have a systemd unit run its service without Relive again

    Removes the drop-in that `relive adopt` wrote, shows it and changes nothing else.
    """
    done = remove(ReleaseWish(unit=unit, force=force, restart=restart, dry_run=dry_run))
    tell(Terminal(as_json=as_json), done, "is released", dry_run=dry_run)
