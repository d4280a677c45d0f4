"""``relive mcp``: the operations as tools for LLM agents."""

from __future__ import annotations

from typing import Annotated

import typer

from relive.cli.streams import written
from relive.config import load_settings

__all__ = ["mcp"]


def mcp(
    act: Annotated[
        bool,
        typer.Option(
            "--act",
            help="Also tools whose effects stay: they commit, tag, restore branches, run commands in them, write files",
        ),
    ] = False,
    host: Annotated[
        bool,
        typer.Option(
            "--host",
            help="Also these, and tools that act on this host as you: start and stop services, change keys, send commits away",
        ),
    ] = False,
) -> None:
    """Serve the Model Context Protocol to an LLM agent

    The agent finds out what failed, replays it, and looks inside. By default all tools look or go back: branches that they
    need are gone when they answer.

    It speaks over standard input and output, as clients start it: `{"command": "relive", "args": ["mcp"]}`. Over HTTP the same
    tools are at `/mcp` of `relive serve`.

    What an agent reads was written by whoever the services talked to. Give it `--host` only where it may have a shell as this user.
    """
    from relive.mcp.log import log_to_stderr
    from relive.mcp.server import make_server

    log_to_stderr()
    try:
        make_server(load_settings(), acts=act, for_host=host).run("stdio")
    except BaseExceptionGroup as errors:
        lost = errors.subgroup(OSError)  # of the streams: what tools raise is answered
        if lost is None:
            raise
        with written():
            raise _first(lost) from errors


def _first(error: BaseException) -> BaseException:
    return _first(error.exceptions[0]) if isinstance(error, BaseExceptionGroup) else error
