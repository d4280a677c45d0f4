"""``relive logs``: what a branch or a capsule wrote to its standard output and error."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from relive.agent.capsule import all_lives
from relive.cli.terminal import AsJson, Terminal
from relive.config import Settings, load_settings
from relive.errors import BranchUnknown, MemoryLost
from relive.sandbox.branch import find_branch

__all__ = ["logs"]


def logs(
    name: Annotated[str, typer.Argument(help="A branch's id or a capsule's name")],
    stubs: Annotated[
        bool, typer.Option("--stubs", help="What the branch's stubs could not answer as recorded, instead")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show the output of a branch or capsule: stdout on stdout, stderr on stderr"""
    streams, lost = _streams(load_settings(), name)
    if as_json:
        texts = {kind: path.read_text(errors="replace") for kind, path in streams.items()}
        Terminal(as_json=True).answer(texts if lost is None else {**texts, "memory_lost": lost.as_json()})
        return
    if stubs:
        said = streams.get("stubs")
        sys.stdout.write(said.read_text(errors="replace") if said is not None else "")
        return
    sys.stdout.buffer.write(streams["stdout"].read_bytes())
    sys.stdout.buffer.flush()
    sys.stderr.buffer.write(streams["stderr"].read_bytes())
    sys.stderr.flush()
    if lost is not None:
        Terminal().failed(lost)


def _streams(settings: Settings, name: str) -> tuple[dict[str, Path], MemoryLost | None]:
    """The files, and why a branch was stopped if its memory could not all come."""
    try:
        branch = find_branch(settings, name)
    except BranchUnknown:
        lives = [capsule for capsule in all_lives(settings) if capsule.facts.spec.name == name]
        if not lives:
            raise
        return dict(zip(("stdout", "stderr"), lives[-1].paths.logs, strict=True)), None
    streams = {"stdout": branch.log("stdout"), "stderr": branch.log("stderr")}
    if branch.log("stubs").exists():
        streams["stubs"] = branch.log("stubs")
    return streams, branch.memory_lost
