"""``relive stop``: end a branch, or ask a capsule's service to end."""

from __future__ import annotations

import contextlib
import os
import signal
from typing import Annotated

import typer

from relive.agent.capsule import find_capsule
from relive.agent.control import ask_agent
from relive.agent.launch import tend_capsules
from relive.cli.terminal import AsJson, Terminal
from relive.config import Settings, load_settings
from relive.errors import AgentUnreachable, BranchUnknown, TargetUnknown
from relive.sandbox.branch import find_branch, list_branches

__all__ = ["stop"]


def stop(
    names: Annotated[list[str] | None, typer.Argument(help="Branches (ids) or capsules (names)")] = None,
    all_branches: Annotated[
        bool, typer.Option("--all", help="All branches, also those that have ended")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """End branches and remove what was theirs; a capsule's service is asked to end (SIGTERM)"""
    terminal = Terminal(as_json=as_json)
    settings = load_settings()
    tend_capsules(settings)
    wanted = list(names or [])
    if all_branches:
        wanted += [branch.facts.id for branch in list_branches(settings)]
    stopped = [_stop_one(settings, name) for name in wanted]
    terminal.answer({"stopped": stopped}, "\n".join(stopped) or "nothing to stop")


def _stop_one(settings: Settings, name: str) -> str:
    try:
        branch = find_branch(settings, name)
    except BranchUnknown:
        try:
            capsule = find_capsule(settings, name)
        except TargetUnknown:
            raise BranchUnknown(
                f"{name!r} is no branch and no capsule", remedy="`relive ps --all` lists both"
            ) from None
        with contextlib.suppress(AgentUnreachable):
            ask_agent(capsule.paths.agent_socket, {"op": "stopping"}, limit=5)
        os.kill(capsule.facts.root, signal.SIGTERM)
        return name
    branch.stop()
    return branch.facts.id
