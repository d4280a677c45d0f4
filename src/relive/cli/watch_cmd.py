"""``relive watch``: what ``relive run`` does for a service, for a container or service that runs already."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from relive.cli.terminal import AsJson, Terminal
from relive.config import load_settings
from relive.operations.watching import WatchWish
from relive.operations.watching import watch as begin

__all__ = ["watch"]


def watch(
    target: Annotated[
        str, typer.Argument(help="What runs: podman:NAME, docker:NAME, pid:NUMBER or unit:NAME")
    ],
    every: Annotated[
        str, typer.Option(help="When to commit: a time such as 30s, or request, start, never")
    ] = "30s",
    pause_limit: Annotated[
        float | None,
        typer.Option(
            help="Seconds; a commit that is expected to stop it for longer is not taken by the clock; 0: each is; default: 1",
            min=0,
        ),
    ] = None,
    pause_share: Annotated[
        float | None,
        typer.Option(
            help="Percent of the time that it may stand still for commits by the clock, which come seldomer then; default: 1",
            min=0.001,
            max=100,
        ),
    ] = None,
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
    name: Annotated[
        str | None, typer.Option(help="What a process or unit is called; default: its own name")
    ] = None,
    record: Annotated[
        int | None, typer.Option(help="A service's own port, whose new connections are recorded")
    ] = None,
    log: Annotated[
        list[Path] | None,
        typer.Option(help="A file that a service logs to, beside its standard streams; may be given again"),
    ] = None,
    health_url: Annotated[
        str | None, typer.Option(help="A URL that a healthy service answers with a status below 400")
    ] = None,
    files: Annotated[
        list[Path] | None,
        typer.Option(help="A file or directory of a service that each commit holds; may be given again"),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Watch a container or service that runs already: committed, recorded, its failures seen

    Returns at once; an agent of its own goes on watching, through restarts of a container or unit, and to the end of a process.
    What is watched depends on none of it. `relive stop` ends the watch, and it runs on.

    `--record PORT` records a service's requests without pointing clients elsewhere: new connections to its port reach the recording
    proxy, those that exist are left alone, and should the proxy end, connections reach the service again.
    """
    terminal = Terminal(as_json=as_json)
    wish = WatchWish(
        target=target,
        every=every,
        pause_limit=pause_limit,
        pause_share=pause_share,
        listen=listen,
        upstream=upstream,
        hang_after=hang_after,
        log_pattern=log_pattern or [],
        signals=signals,
        health=health,
        name=name,
        record=record,
        log=log or [],
        health_url=health_url,
        files=files or [],
    )
    begun = begin(load_settings(), wish, terminal)
    terminal.answer(begun, begun.target)
    where = ""
    if begun.listen is not None:
        where = (
            f"; clients go to {begun.listen}"
            if record is None
            else f"; new connections to {begun.listen} are recorded"
        )
    terminal.status(f"{begun.target} is watched{where}.")
    for sentence in begun.missing:
        terminal.status(sentence)
