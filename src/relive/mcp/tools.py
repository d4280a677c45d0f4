"""Tools that refuse arguments they do not know: one that is left unread, an agent takes for obeyed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mcp.server.mcpserver.tools import Tool
from mcp_types import ToolAnnotations

__all__ = ["make_tool"]


def make_tool(
    function: Callable[..., Any], annotations: ToolAnnotations, description: str | None = None
) -> Tool:
    """A tool of a function; its schema says ``additionalProperties: false``, and the SDK refuses what is not in it."""
    tool = Tool.from_function(function, description=description, annotations=annotations)
    arguments = tool.fn_metadata.arg_model
    arguments.model_config["extra"] = "forbid"
    arguments.model_rebuild(force=True)
    return tool.model_copy(update={"parameters": arguments.model_json_schema(by_alias=True)})
