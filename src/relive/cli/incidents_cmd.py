"""``relive incidents``: failures that were seen."""

from __future__ import annotations

from typing import Annotated

import typer

from relive.analyse.shown import one_line, shorten
from relive.cli.terminal import AsJson, Terminal
from relive.config import load_settings
from relive.model.quantities import age, when
from relive.operations.incidents import list_incidents

__all__ = ["incidents"]

_EXCEPTION = 48  # [characters]


def incidents(
    service: Annotated[str | None, typer.Argument(help="Only those of this capsule")] = None,
    as_json: AsJson = False,
) -> None:
    """List incidents, newest first"""
    terminal = Terminal(as_json=as_json)
    found = list_incidents(load_settings(), service, terminal)
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
        for one in found
    ]
    columns = ["incident", "service", "first seen", "last", "times", "before", "at", "exception", "what"]
    terminal.table(found, columns, rows, "There are no incidents.")
