"""``relive stop``: end a branch, ask a capsule's service to end, or end a watch."""

from __future__ import annotations

from typing import Annotated

import typer

from relive.cli.terminal import AsJson, Terminal
from relive.config import load_settings
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
    as_json: AsJson = False,
) -> None:
    """End branches and remove what was theirs; a capsule's service is asked to end (SIGTERM)

    Of what `relive watch` was told only the watch is ended: the container, process or unit runs on.
    """
    terminal = Terminal(as_json=as_json)
    done = stop_all(load_settings(), names or [], terminal, every_branch=all_branches)
    terminal.answer(done, "\n".join(done.stopped) or "nothing to stop")
