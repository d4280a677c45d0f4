"""``relive incidents``: failures that were seen."""

from __future__ import annotations

from typing import Annotated

import typer

from relive.cli.terminal import AsJson, Terminal
from relive.config import load_settings
from relive.incidents.report.shown import one_line, shorten
from relive.model.quantities import age, when
from relive.operations.incidents import IncidentsParams, page_of_incidents
from relive.operations.targets import require_known

__all__ = ["incidents"]

_EXCEPTION = 48  # [characters]
_ALL = 1 << 62


def incidents(
    service: Annotated[str | None, typer.Argument(help="Only those of this capsule")] = None,
    limit: Annotated[
        int | None, typer.Option("-n", "--limit", help="At most so many; default: all", min=1)
    ] = None,
    after: Annotated[
        str | None, typer.Option(metavar="CURSOR", help="Go on where a list ended that said so")
    ] = None,
    search: Annotated[
        str | None,
        typer.Option("-s", "--search", help="Only with these words in what failed or the exception"),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List incidents, newest first"""
    terminal = Terminal(as_json=as_json)
    params = IncidentsParams(service=service, search=search, after=after, limit=limit or _ALL)
    settings = load_settings()
    page = page_of_incidents(settings, params, terminal)
    if service is not None and not page.items:
        require_known(settings, service)
    rows = [
        [
            str(one.number),
            one.service,
            when(one.sighting.seen_wall_ns),
            age(one.last_seen_wall_ns),
            str(one.times),
            one.before[:10] if one.before else "-",
            one.at[:10] if one.at else "-",
            shorten(one_line(one.exception), _EXCEPTION) or "-",
            one.sighting.summary,
        ]
        for one in page.items
    ]
    columns = ["incident", "service", "first seen", "last", "times", "before", "at", "exception", "what"]
    nothing = "There are no incidents." if service is None else f"There are no incidents of {service}."
    terminal.table(page.items, columns, rows, nothing)
    if page.next is not None:
        terminal.status(f"There are more: --after {page.next}")
