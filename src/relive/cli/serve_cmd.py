"""``relive serve``: the REST API, and MCP over HTTP."""

from __future__ import annotations

from typing import Annotated

import typer

from relive.cli.terminal import AsJson, Terminal
from relive.config import load_settings
from relive.model.addresses import parse_address

__all__ = ["serve"]


def serve(
    listen: Annotated[
        str, typer.Option(help="[HOST:]PORT at which it listens; port 0: any that is free")
    ] = "127.0.0.1:7390",
    no_credentials: Annotated[
        bool, typer.Option("--no-credentials", help="Ask nobody for a token; at loopback addresses only")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Serve the REST API, and MCP at /mcp

    Its page is at /docs. Callers show a token, see `relive token create`; docs/api-security.md says who may do what. What takes
    long is done as a task, which survives the death of the server: the next one goes on with it.
    """
    from relive.mcp.http import serve_application

    terminal = Terminal(as_json=as_json)
    host, port = parse_address(listen, least_port=0)

    def ready(address: str) -> None:
        terminal.answer({"address": address}, address)
        terminal.status(
            f"Serving; {address}/docs tells what can be asked. Ctrl-C ends it, tasks go on later."
        )

    serve_application(load_settings(), host, port, without_credentials=no_credentials, ready=ready)
