"""``relive ps``: what runs."""

from __future__ import annotations

from typing import Annotated

import typer

from relive.agent.capsule import living_capsules
from relive.agent.launch import tend_capsules
from relive.agent.sightings import shell_status
from relive.cli.terminal import AsJson, Terminal, age
from relive.config import load_settings
from relive.sandbox.branch import Branch, list_branches

__all__ = ["ps"]


def ps(
    everything: Annotated[
        bool, typer.Option("--all", "-a", help="Also branches whose processes have ended")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """List running capsules and branches"""
    terminal = Terminal(as_json=as_json)
    settings = load_settings()
    tended = tend_capsules(settings)
    values: list[dict[str, object]] = []
    rows: list[list[str]] = []
    for capsule in living_capsules(settings):
        facts = capsule.facts
        address = "{}:{}".format(*facts.spec.listen) if facts.spec.listen else ""
        values.append(
            {
                "kind": "capsule",
                "id": facts.spec.name,
                "pid": facts.root,
                "listen": address,
                "command": facts.spec.command,
            }
        )
        rows.append(
            [facts.spec.name, "capsule", "running", str(facts.root), age(facts.started_wall_ns), address]
        )
    for branch in list_branches(settings):
        if not (branch.is_alive or everything):
            continue
        state = _state(branch)
        memory = branch.memory
        ports = ", ".join(f"{one.host}:{one.host_port}->{one.port}" for one in branch.facts.publications)
        values.append(
            {
                "kind": "branch",
                "id": branch.facts.id,
                "pid": branch.facts.root,
                "state": state,
                "commit": branch.facts.commit,
                "name": branch.facts.name,
                "ports": ports,
                "memory": memory.percent if memory is not None else None,
            }
        )
        about = f"{branch.facts.name} at {branch.facts.commit[:10]} {ports}".strip()
        rows.append(
            [
                branch.facts.id,
                "branch",
                state,
                str(branch.facts.root),
                age(branch.facts.created_wall_ns),
                about,
            ]
        )
    terminal.table(values, ["id", "kind", "state", "pid", "age", "about"], rows, "Nothing runs.")
    for name in tended:
        terminal.status(f"The agent of {name} had died; it has a new one.")


def _state(branch: Branch) -> str:
    status, memory = branch.wait_status, branch.memory
    if branch.memory_lost is not None:
        return "ended (its memory was not all there)"
    if status is not None:
        return f"ended ({shell_status(status)})"
    if not branch.is_alive:
        return "ended"
    if memory is not None and not memory.is_complete:
        return f"running, {memory.percent} % of its memory is there"
    return "running"
