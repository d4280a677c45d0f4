"""Tools that only look: lists, one thing in full, what it said. Long ones come in pages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from mcp.server.mcpserver.tools import Tool
from mcp_types import ToolAnnotations
from pydantic import BaseModel, Field

from relive.check.report import CheckReport
from relive.config import Settings
from relive.mcp.stories import (
    Frames,
    IncidentLines,
    Story,
    TimelinePage,
    frames_of,
    lines_of,
    story_of,
    timeline_of,
)
from relive.mcp.tools import make_tool
from relive.operations.branch_states import BranchState, branch_states
from relive.operations.branches import LogPart, LogStream, log_part
from relive.operations.checking import CHECK, CheckParams
from relive.operations.commits import CommitDetail, CommitPage, CommitsParams, page_of_commits, show_commit
from relive.operations.incident_detail import show_incident
from relive.operations.incidents import IncidentsParams, page_of_incidents
from relive.operations.operation import Result
from relive.operations.progress import Silent
from relive.operations.runs import RunDetail, RunPage, RunsParams, list_runs, show_run
from relive.operations.subprocess_runner import perform_apart
from relive.operations.targets import RunningTarget, list_targets

__all__ = ["looking_tools"]

_QUIET = Silent()
_LOOKS = ToolAnnotations(read_only_hint=True, idempotent_hint=True, open_world_hint=False)

Service = Annotated[str | None, Field(description="Only those of this service")]
Limit = Annotated[int, Field(ge=1, le=200, description="At most so many")]
Place = Annotated[int, Field(ge=0, description="`next` of the page before")]
Search = Annotated[str | None, Field(description="Only with these words")]
Cursor = Annotated[str | None, Field(description="`next` of the page before")]
Number = Annotated[int, Field(ge=1, description="Number of the incident")]


class Targets(Result):
    """What can be committed."""

    items: list[RunningTarget]


class Branches(Result):
    """Branches, oldest first."""

    items: list[BranchState]


def looking_tools(settings: Settings) -> list[Tool]:
    """The tools."""
    made: list[Tool] = []

    def add(function: Callable[..., BaseModel]) -> None:
        made.append(make_tool(function, _LOOKS))

    def targets() -> Targets:
        """The services that run under Relive and can be committed, and what of their protection does not work."""
        return Targets(items=list_targets(settings, _QUIET))

    def commits(
        target: Service = None, search: Search = None, after: Cursor = None, limit: Limit = 20
    ) -> CommitPage:
        """Commits of live states, newest first."""
        params = CommitsParams(target=target, search=search, after=after, limit=limit)
        return page_of_commits(settings, params, _QUIET)

    def commit_detail(
        ref: Annotated[str, Field(description="Id, tag, NAME, or NAME@{2 minutes ago}")],
    ) -> CommitDetail:
        """One commit in full: processes, sockets, files, what it belongs to."""
        return show_commit(settings, ref)

    def incidents(
        service: Service = None, search: Search = None, after: Cursor = None, limit: Limit = 20
    ) -> IncidentLines:
        """Failures that were seen, newest first: begin here to find out what failed."""
        params = IncidentsParams(service=service, search=search, after=after, limit=limit)
        return lines_of(page_of_incidents(settings, params, _QUIET))

    def incident(number: Number) -> Story:
        """What failed and what is known of it, in short; frames and timeline are tools of their own."""
        return story_of(show_incident(settings, number, _QUIET))

    def incident_frames(
        number: Number,
        after: Place = 0,
        limit: Limit = 10,
        own: Annotated[bool, Field(description="Only the service's own code")] = True,
    ) -> Frames:
        """The frames of an incident with their locals as they were when it was raised, innermost first."""
        return frames_of(show_incident(settings, number, _QUIET), after, limit, own=own)

    def incident_timeline(
        number: Number,
        after: Place = 0,
        limit: Limit = 50,
        everything: Annotated[bool, Field(description="Also each reading of clock and randomness")] = False,
    ) -> TimelinePage:
        """What the request that failed did until then: queries, calls, logs, with results and times; what repeats in one row."""
        return timeline_of(show_incident(settings, number, _QUIET), after, limit, everything=everything)

    def branches(ended: Annotated[bool, Field(description="With those that have ended")] = False) -> Branches:
        """Restored lives of commits, each in a sealed sandbox."""
        return Branches(items=branch_states(settings, ended=ended))

    def logs(
        name: Annotated[str, Field(description="A branch's id or a service's name")],
        stream: LogStream = LogStream.STDERR,
        after: Annotated[
            int | None, Field(ge=0, description="`next` of the part before; without: the end")
        ] = None,
    ) -> LogPart:
        """What a branch or a service wrote, or (stubs) what a branch asked that was not recorded."""
        return log_part(settings, name, stream, after)

    def runs(
        incident: Annotated[int | None, Field(ge=1, description="Only those of this incident")] = None,
        after: Annotated[int | None, Field(ge=1, description="`next` of the page before")] = None,
        limit: Limit = 20,
    ) -> RunPage:
        """Replays and reproductions that were done, with their verdicts, newest first."""
        return list_runs(settings, RunsParams(incident=incident, after=after, limit=limit))

    def run(number: Annotated[int, Field(ge=1, description="Number of the run")]) -> RunDetail:
        """One replay or reproduction in full: each run's verdict, the first difference, what stubs answered."""
        return show_run(settings, number)

    def check(
        target: Annotated[
            str, Field(description="pid:NUMBER, a service's name, podman:NAME or docker:NAME", max_length=512)
        ],
    ) -> CheckReport:
        """Whether a running process can be committed, what would be lost, and what it costs; touches nothing."""
        return perform_apart(CHECK, settings, CheckParams(target=target))

    add(targets)
    add(check)
    add(commits)
    add(commit_detail)
    add(incidents)
    add(incident)
    add(incident_frames)
    add(incident_timeline)
    add(branches)
    add(logs)
    add(runs)
    add(run)
    return made
