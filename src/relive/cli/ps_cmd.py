"""``relive ps``: what runs."""

from __future__ import annotations

from typing import Annotated

import typer

from relive.cli.health_cmd import in_words
from relive.cli.terminal import AsJson, Terminal
from relive.config import load_settings
from relive.model.quantities import age
from relive.operations.branch_states import BranchState, branch_states
from relive.operations.targets import RunningTarget, list_targets

__all__ = ["ps"]


def ps(
    everything: Annotated[
        bool, typer.Option("--all", "-a", help="Also branches whose processes have ended")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """List running capsules and branches, and what is watched"""
    terminal = Terminal(as_json=as_json)
    settings = load_settings()
    targets = list_targets(settings, terminal)
    branches = branch_states(settings, ended=everything)
    values = [*map(_target_value, targets), *map(_branch_value, branches)]
    rows = [*map(_target_row, targets), *map(_branch_row, branches)]
    terminal.table(values, ["id", "kind", "state", "pid", "age", "about"], rows, "Nothing runs.")
    for one in targets:
        for note in one.notes:
            terminal.status(f"{one.called}: {note}")
        for trouble in one.troubles:
            terminal.status(f"{one.name} is not protected: {in_words(trouble)}.")


_RECORDING = {"off": " (not recording: the disk is full)", "no-proxy": " (not recording: no proxy runs)"}


def _target_value(one: RunningTarget) -> dict[str, object]:
    return {
        "kind": one.kind,
        "id": one.name,
        "name": one.called,
        "pid": one.pid,
        "listen": one.listen or "",
        "capture": one.capture,
        "recording": one.recording,
        "egress": one.egress,
        "command": one.command,
        "pace": one.pace.model_dump() if one.pace is not None else None,
        "notes": list(one.notes),
        "troubles": [trouble.model_dump() for trouble in one.troubles],
    }


def _target_row(one: RunningTarget) -> list[str]:
    state = "running" if one.pid else "not running"
    if one.troubles:
        state += ", not protected"
    about = f"{one.listen or ''}{_RECORDING.get(one.recording or '', '')}"
    if one.called != one.name.partition(":")[2]:
        about = f"{one.called} {about}".strip() if one.called != one.name else about
    return [one.name, one.kind, state, str(one.pid), age(one.started_wall_ns), about]


def _branch_value(one: BranchState) -> dict[str, object]:
    facts = one.facts
    return {
        "kind": "branch",
        "id": facts.id,
        "pid": facts.root,
        "state": one.state,
        "commit": facts.commit,
        "name": facts.name,
        "ports": _ports(one),
        "memory": one.memory,
    }


def _branch_row(one: BranchState) -> list[str]:
    facts = one.facts
    about = f"{facts.name} at {facts.commit[:10]} {_ports(one)}".strip()
    return [facts.id, "branch", one.state, str(facts.root), age(facts.created_wall_ns), about]


def _ports(one: BranchState) -> str:
    return ", ".join(f"{port.host}:{port.host_port}->{port.port}" for port in one.facts.publications)
