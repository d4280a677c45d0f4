"""``relive retain``: drop old commits by a schedule."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from relive.cli.terminal import AsJson, Terminal
from relive.config import Settings, load_settings
from relive.incidents.incidents import Incidents
from relive.maintenance.retention import Retention
from relive.maintenance.thinning import doomed, thin
from relive.model.quantities import age, size, when
from relive.store import Store

__all__ = ["retain"]


def retain(
    service: Annotated[str | None, typer.Argument(help="Only commits of this target; else of all")] = None,
    keep: Annotated[
        int | None, typer.Option("--keep", help="The newest that stay in any case [setting: keep]", min=1)
    ] = None,
    minutes: Annotated[
        int | None, typer.Option(help="Keep one of each of so many minutes [setting: keep_minutes]", min=0)
    ] = None,
    hours: Annotated[
        int | None, typer.Option(help="Keep one of each of so many hours [setting: keep_hours]", min=0)
    ] = None,
    days: Annotated[
        int | None, typer.Option(help="Keep one of each of so many days [setting: keep_days]", min=0)
    ] = None,
    months: Annotated[
        int | None, typer.Option(help="Keep one of each of so many months [setting: keep_months]", min=0)
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", "-n", help="Only list what would be dropped")] = False,
    as_json: AsJson = False,
) -> None:
    """Drop old commits, keeping the newest and one of each of so many minutes, hours, days, months

    Only minutes (hours, ...) count in which there is a commit, so nothing is dropped because time went by. The newest commit,
    tagged commits and those of incidents always stay. The agent of a capsule does the same now and then, by the settings.
    """
    terminal = Terminal(as_json=as_json)
    settings = load_settings()
    store, incidents = Store(settings.store), Incidents(settings.incidents)
    retention = _retention(settings, keep, minutes, hours, days, months)
    lines = {line.id: line for line in store.log(service)}
    names = dict.fromkeys(line.name for line in lines.values())
    act = doomed if dry_run else thin
    dropped = [
        lines[commit]
        for name in names
        for commit in act(store, name, retention, incidents)
        if commit in lines
    ]
    rows = [
        [line.id[:10], line.name, when(line.taken_wall_ns), age(line.taken_wall_ns), size(line.bytes)]
        for line in dropped
    ]
    value = {
        "dry_run": dry_run,
        "kept": len(lines) - len(dropped),
        "dropped": [asdict(one) for one in dropped],
    }
    if as_json:
        terminal.answer(value)
    else:
        terminal.table(
            dropped, ["commit", "target", "taken", "ago", "size"], rows, "Nothing is to be dropped."
        )
    verb = "Would drop" if dry_run else "Dropped"
    terminal.status(f"{verb} {len(dropped)} of {len(lines)} commits.")


def _retention(
    settings: Settings,
    keep: int | None,
    minutes: int | None,
    hours: int | None,
    days: int | None,
    months: int | None,
) -> Retention:
    configured = Retention.configured(settings)
    return Retention(
        keep if keep is not None else configured.newest,
        minutes if minutes is not None else configured.minutes,
        hours if hours is not None else configured.hours,
        days if days is not None else configured.days,
        months if months is not None else configured.months,
    )
