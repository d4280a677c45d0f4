"""``relive log``: commits, newest first."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from relive.agent.launch import tend_capsules
from relive.cli.terminal import AsJson, Terminal, age, duration, size, when
from relive.config import load_settings
from relive.store import Store

__all__ = ["log"]


def log(
    target: Annotated[str | None, typer.Argument(help="Only commits of this target")] = None,
    limit: Annotated[int, typer.Option("-n", "--limit", help="At most so many", min=1)] = 50,
    as_json: AsJson = False,
) -> None:
    """List commits, newest first"""
    terminal = Terminal(as_json=as_json)
    settings = load_settings()
    tend_capsules(settings)
    store = Store(settings.store)
    commits = store.log(target, limit)
    names: dict[str, list[str]] = {}
    for tag, commit in store.tags().items():
        names.setdefault(commit, []).append(tag)
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
            ", ".join(names.get(one.id, [])),
        ]
        for one in commits
    ]
    columns = ["commit", "target", "taken", "ago", "trigger", "pause", "durable", "size", "tags"]
    values = [{**asdict(one), "tags": names.get(one.id, [])} for one in commits]
    terminal.table(values, columns, rows, "There are no commits.")
