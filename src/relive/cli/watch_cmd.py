"""``relive watch``: what ``relive run`` does for a service, for a container that runs already."""

from __future__ import annotations

from typing import Annotated

import typer

from relive.cli.terminal import AsJson, Terminal
from relive.config import load_settings
from relive.operations.watching import WatchWish
from relive.operations.watching import watch as begin

__all__ = ["watch"]


def watch(
    target: Annotated[str, typer.Argument(help="The container: podman:NAME, docker:NAME, or its id")],
    every: Annotated[
        str, typer.Option(help="When to commit: a time such as 30s, or request, start, never")
    ] = "30s",
    listen: Annotated[
        str | None, typer.Option(help="ADDR:PORT at which a recording proxy listens for the container")
    ] = None,
    upstream: Annotated[
        str | None,
        typer.Option(help="ADDR:PORT at which the host reaches it; default: its published port"),
    ] = None,
    hang_after: Annotated[
        float | None, typer.Option(help="Seconds without an answer that count as a hang", min=0.1)
    ] = 30.0,
    log_pattern: Annotated[
        list[str] | None,
        typer.Option(help="A line of its output that matches this is a failure; may be given again"),
    ] = None,
    signals: Annotated[bool, typer.Option(help="Commit at fatal signals, before the process dies")] = True,
    health: Annotated[bool, typer.Option(help="Run its health check where nobody does in time")] = True,
    as_json: AsJson = False,
) -> None:
    """Watch a container that runs already: committed, recorded, its failures seen

    Returns at once; an agent of its own goes on watching, through restarts of the container. The container depends on none of
    it. `relive stop podman:NAME` ends the watch, and the container runs on.
    """
    terminal = Terminal(as_json=as_json)
    wish = WatchWish(
        target=target,
        every=every,
        listen=listen,
        upstream=upstream,
        hang_after=hang_after,
        log_pattern=log_pattern or [],
        signals=signals,
        health=health,
    )
    begun = begin(load_settings(), wish, terminal)
    terminal.answer(begun, begun.target)
    where = f"; clients go to {begun.listen}" if begun.listen is not None else ""
    terminal.status(f"{begun.target} is watched{where}.")
    for sentence in begun.missing:
        terminal.status(sentence)
