"""Tools that refuse arguments they do not know: one that is left unread, an agent takes for obeyed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.mcpserver.tools import Tool
from mcp_types import ToolAnnotations

from relive.mcp.refusals import refusal

__all__ = ["make_tool"]


class _Tool(Tool):
    """A tool whose errors have the four parts, whether the arguments, the work or a defect is to blame."""

    async def run(
        self, arguments: dict[str, Any], context: Context[Any], convert_result: bool = False
    ) -> Any:
        """As the SDK's; raises ToolError only, its text as ``refusal`` writes it."""
        try:
            return await super().run(arguments, context, convert_result)
        except ToolError as error:
            raised = error.__cause__
            if raised is None or isinstance(raised, ToolError):
                raise
            raise refusal(self.name, raised) from raised


def make_tool(
    function: Callable[..., Any], annotations: ToolAnnotations, description: str | None = None
) -> Tool:
    """A tool of a function; its schema says ``additionalProperties: false``, and the SDK refuses what is not in it.

    What the function raises is told as ``refusals`` has it.
    """
    tool = _Tool.from_function(function, description=description, annotations=annotations)
    arguments = tool.fn_metadata.arg_model
    arguments.model_config["extra"] = "forbid"
    arguments.model_rebuild(force=True)
    return tool.model_copy(update={"parameters": arguments.model_json_schema(by_alias=True)})
