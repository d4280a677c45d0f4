"""``relive store``: the store as a whole."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from relive.cli.terminal import AsJson, Terminal
from relive.config import load_settings
from relive.errors import UsageError
from relive.maintenance.usage import KINDS
from relive.model.quantities import size, when
from relive.operations.storage import StorageStats
from relive.store import Store

__all__ = ["store"]

store = typer.Typer(help="Tell what the store holds", no_args_is_help=True)


@store.callback()
def _group() -> None:
    """Tell what the store holds"""


@store.command("stats")
def stats(
    page: Annotated[
        Path | None, typer.Option("--html", help="Write a page with a plot to this file, replacing it")
    ] = None,
    commits: Annotated[bool, typer.Option("--commits", help="List each commit, too")] = False,
    as_json: AsJson = False,
) -> None:
    """Tell how much commits bring back, what they take, and what takes the room

    "stored" of a service is what its commits need, shared things included; "freed" of a commit what no other needs.
    """
    from relive.maintenance.stats import measure
    from relive.maintenance.stats_page import stats_page

    terminal = Terminal(as_json=as_json)
    settings = load_settings()
    found = measure(Store(settings.store), progress=terminal.progress)
    if page is not None:
        try:
            page.write_text(stats_page(found, where=str(settings.store)), "utf-8")
        except OSError as error:
            raise UsageError(f"--html: {page} cannot be written", cause=error.strerror) from error
        terminal.status(f"Wrote {page}.")
    if as_json:
        terminal.answer(StorageStats.of(found))
        return
    terminal.answer(
        None, f"{len(found.commits)} commits bring back {size(found.logical)} and take {size(found.stored)}\n"
    )
    rows = [
        [KINDS[kind], size(count), f"{100 * count / max(1, found.stored):.1f} %"]
        for kind, count in found.dominance.items()
        if count
    ]
    terminal.table(rows, ["what", "size", "share"], rows, "")
    rows = [
        [one.name, str(one.commits), size(one.logical), size(one.stored), size(one.a_commit)]
        for one in found.services
    ]
    if rows:
        terminal.answer(None, "")
        terminal.table(rows, ["service", "commits", "brings back", "stored", "a commit adds"], rows, "")
    if commits:
        rows = [
            [
                one.id[:10],
                one.name,
                when(one.taken_wall_ns),
                size(one.logical),
                size(one.new),
                size(one.alone),
            ]
            for one in reversed(found.commits)
        ]
        terminal.answer(None, "")
        terminal.table(rows, ["commit", "target", "taken", "brings back", "new then", "freed"], rows, "")
