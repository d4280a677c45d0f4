"""``relive log``: commits, newest first."""

from __future__ import annotations

from typing import Annotated

import typer

from relive.cli.terminal import AsJson, Terminal
from relive.config import load_settings
from relive.model.quantities import age, duration, size, when
from relive.operations.commits import list_commits

__all__ = ["log"]


def log(
    target: Annotated[str | None, typer.Argument(help="Only commits of this target")] = None,
    limit: Annotated[int, typer.Option("-n", "--limit", help="At most so many", min=1)] = 50,
    as_json: AsJson = False,
) -> None:
    """List commits, newest first"""
    terminal = Terminal(as_json=as_json)
    commits = list_commits(load_settings(), target, limit, terminal)
    rows = [
        [
            one.id[:10],
            one.name,
            when(one.taken_wall_ns),
            age(one.taken_wall_ns),
            one.trigger,
            duration(one.pause_us),
            duration(one.durable_us),
            size(one.bytes),
            ", ".join(one.tags),
        ]
        for one in commits
    ]
    columns = ["commit", "target", "taken", "ago", "trigger", "pause", "durable", "size", "tags"]
    terminal.table(commits, columns, rows, "There are no commits.")
