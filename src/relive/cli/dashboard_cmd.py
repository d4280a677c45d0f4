"""``relive dashboard``: pages for people with a browser."""

from __future__ import annotations

from typing import Annotated

import typer

from relive.cli.terminal import Terminal
from relive.config import load_settings
from relive.errors import ToolMissing

__all__ = ["dashboard"]


def dashboard(
    host: Annotated[str, typer.Option(help="The address to listen at")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port; 0 takes any that is free")] = 8501,
    no_token: Annotated[
        bool,
        typer.Option(
            "--no-token",
            help="No secret part in the address: every user and program of this host may act as root (loopback only)",
        ),
    ] = False,
) -> None:
    """Show incidents, commits, branches and runs in a browser, and restore, replay and export from there

    It serves until it is interrupted, and prints the address to open. The address has a secret part, since whoever opens it acts
    as root on this host. From another machine, come through `ssh -L 8501:127.0.0.1:8501 HOST`: the connection itself is not
    encrypted.
    """
    terminal = Terminal()
    try:
        from relive.dashboard.serving import new_token, serve
    except ModuleNotFoundError as missing:
        raise ToolMissing(
            "the dashboard is not installed",
            cause=f"there is no Python package {missing.name}",
            remedy="pip install 'relive[dashboard]'",
        ) from missing
    load_settings()  # a setting that cannot be read is said here, not on the page
    serve(
        host,
        port,
        None if no_token else new_token(),
        lambda address: terminal.answer(address, f"The dashboard is at {address}"),
    )
