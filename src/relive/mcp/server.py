"""The server: its tools, resources and prompts."""

from __future__ import annotations

from typing import Annotated, Any

import anyio
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ResourceNotFoundError
from mcp.server.mcpserver.tools import Tool
from mcp_types import CallToolResult, InputRequiredResult, ToolAnnotations
from pydantic import Field

from relive import __version__
from relive.config import Settings
from relive.errors import NotFound
from relive.mcp.acting import tool_of
from relive.mcp.looking import looking_tools
from relive.mcp.refusals import refusal
from relive.mcp.stories import story_of
from relive.mcp.tools import make_tool
from relive.mcp.trail import acting
from relive.operations.branches import Stopped, stop
from relive.operations.catalogue import OPERATIONS
from relive.operations.incident_detail import show_incident
from relive.operations.incidents import IncidentsParams, page_of_incidents
from relive.operations.operation import Effect
from relive.operations.operation import Tool as ToolFace
from relive.operations.progress import Silent
from relive.operations.runs import show_run
from relive.operations.tags import Tag, add_tag

__all__ = ["make_both_servers", "make_server"]

_QUIET = Silent()
_AT_ONCE = 16  # operations
_INSTRUCTIONS = """Relive commits the live state of services, records what crosses their border, and replays failures.
Begin with `incidents`, look at one with `incident`, `incident_frames` and `incident_timeline`; `replay` shows whether it happens
again from the commit before, in a sealed sandbox with every outside dependency answered from the recording; `debug` with `step`
goes back line by line. The service itself is never touched. Where there is `restore`, it brings a commit back as a branch in which
`exec` may do anything; stop branches when you are done."""

_READS = ToolAnnotations(read_only_hint=True, idempotent_hint=True, open_world_hint=False)
_ADDS = ToolAnnotations(
    read_only_hint=False, destructive_hint=False, idempotent_hint=False, open_world_hint=False
)
_DESTROYS = ToolAnnotations(
    read_only_hint=False, destructive_hint=True, idempotent_hint=False, open_world_hint=False
)
_HINTS = {Effect.READS: _READS, Effect.ADDS: _ADDS, Effect.DESTROYS: _DESTROYS}


def make_server(settings: Settings, *, acts: bool = False, for_host: bool = False) -> MCPServer:
    """The server; run it over a transport.

    Args:
        acts: also with the tools whose effects stay: they commit, restore branches, run commands in these, write files.
        for_host: also with the tools that act on the host as this process's user: they start programs, change keys, name remotes.
    """
    return _serving(settings, _tools(settings, acts=acts or for_host, for_host=for_host))


def make_both_servers(settings: Settings) -> tuple[MCPServer, MCPServer]:
    """Without and with the tools for the host, both with those that act: a token's scopes have said so. They share the others: to
    make all takes a third of a second of CPU.
    """
    tools = _tools(settings, acts=True, for_host=True)
    acting_on_host = {
        one.tool_name
        for one in OPERATIONS.values()
        if isinstance(face := one.faces.mcp, ToolFace) and face.is_for_host
    }
    plain = [one for one in tools if one.name not in acting_on_host]
    return _serving(settings, plain), _serving(settings, tools)


def _tools(settings: Settings, *, acts: bool, for_host: bool) -> list[Tool]:
    at_once = anyio.CapacityLimiter(_AT_ONCE)
    of_operations = [
        make_tool(
            tool_of(one, settings, at_once, () if acts else face.acting_fields),
            _HINTS[face.effect],
            face.about,
        )
        for one in OPERATIONS.values()
        if isinstance(face := one.faces.mcp, ToolFace)
        and (for_host or not face.is_for_host)
        and (acts or not face.is_acting)
    ]
    return [*looking_tools(settings), *of_operations, *(_stopping_tools(settings) if acts else [])]


def _serving(settings: Settings, tools: list[Tool]) -> MCPServer:
    server = _Server(
        "relive", version=__version__, instructions=_INSTRUCTIONS, log_level="ERROR", tools=tools
    )
    _add_resources(server, settings)
    _add_prompts(server)
    return server


class _Server(MCPServer):
    """Tells of a tool that there is none of as of any other error."""

    async def call_tool(
        self, name: str, arguments: dict[str, Any], context: Context[Any] | None = None
    ) -> CallToolResult | InputRequiredResult:
        """As the SDK's."""
        if self._tool_manager.get_tool(name) is None:
            raise refusal(
                name,
                NotFound(
                    f"there is no tool {name!r}",
                    remedy="the list of tools has their names; `relive mcp --act` and `--host` have more",
                ),
            )
        return await super().call_tool(name, arguments, context)


def _stopping_tools(settings: Settings) -> list[Tool]:
    def stop_branches(
        context: Context[Any],
        branches: Annotated[list[str], Field(min_length=1, description="Ids of branches")],
    ) -> Stopped:
        """End branches and remove what was theirs."""
        with acting(context, "stop_branches", {"branches": branches}):
            return stop(settings, branches, _QUIET, only_branches=True)

    def tag(
        context: Context[Any],
        name: Annotated[str, Field(description="The tag")],
        ref: Annotated[str, Field(description="The commit it shall name")],
    ) -> Tag:
        """Give a commit a name that keeps it."""
        with acting(context, "tag", {"name": name, "ref": ref}):
            return add_tag(settings, name, ref)

    return [make_tool(stop_branches, _DESTROYS), make_tool(tag, _ADDS)]


def _add_resources(server: MCPServer, settings: Settings) -> None:
    @server.resource("relive://incidents", mime_type="text/plain", description="A line for each incident")
    def incidents() -> str:
        found = page_of_incidents(settings, IncidentsParams(limit=200), _QUIET).items
        return "\n".join(
            f"relive://incidents/{one.number} {one.service}: {one.sighting.summary} {one.exception}".strip()
            for one in found
        )

    @server.resource("relive://incidents/{number}", mime_type="application/json", description="What failed")
    def incident(number: int) -> str:
        try:
            return story_of(show_incident(settings, number, _QUIET)).model_dump_json(indent=1)
        except NotFound as error:
            raise ResourceNotFoundError(str(error)) from error

    @server.resource(
        "relive://runs/{number}", mime_type="application/json", description="What a replay showed"
    )
    def run(number: int) -> str:
        try:
            return show_run(settings, number).model_dump_json(indent=1)
        except NotFound as error:
            raise ResourceNotFoundError(str(error)) from error


def _add_prompts(server: MCPServer) -> None:
    @server.prompt(title="What failed, and why")
    def what_failed_and_why(
        incident: Annotated[str, Field(description="Number of the incident; empty: the newest")] = "",
    ) -> str:
        """Find the cause of a failure from what was recorded, and prove it by a replay."""
        which = f"incident {incident}" if incident else "the newest of `incidents`"
        return (
            f"Find out what failed in {which}, and why.\n"
            "1. Read `incident`, then `incident_frames` (locals as they were) and `incident_timeline`.\n"
            "2. Say which value or which answer from outside was wrong, and where it came from: `read_before` names who "
            "had written what was read.\n"
            "3. `replay` it three times. If it is reproduced, the state and the request are enough to explain it; if it "
            "diverged, the first difference is the place to look; `same-answer` proves nothing: read `unseen`.\n"
            "4. If you need to look closer, go back line by line: `debug` with `step`, `logpoint`, `who_wrote`, `why`.\n"
            "Answer with: what failed, the cause, the evidence (frame, timeline row, verdict), and what would mend it."
        )
