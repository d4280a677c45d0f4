"""``relive mcp``: the operations as tools for LLM agents."""

from __future__ import annotations

from relive.config import load_settings

__all__ = ["mcp"]


def mcp() -> None:
    """Serve the Model Context Protocol to an LLM agent

    The agent finds out what failed, replays it, and looks inside.

    It speaks over standard input and output, as clients start it: `{"command": "relive", "args": ["mcp"]}`. Over HTTP the same
    tools are at `/mcp` of `relive serve`.
    """
    from relive.mcp.server import make_server

    make_server(load_settings()).run("stdio")
