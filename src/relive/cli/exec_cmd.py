"""``relive exec``: run a command inside a branch."""

from __future__ import annotations

import os
import subprocess
from typing import Annotated

import typer

from relive.config import load_settings
from relive.errors import BranchUnknown
from relive.sandbox.branch import find_branch

__all__ = ["exec_"]


def exec_(
    branch: Annotated[str, typer.Argument(help="The branch's id, or a unique beginning of it")],
    command: Annotated[list[str], typer.Argument(help="The command, after --")],
) -> None:
    """Run a command inside a branch; its exit status is the command's"""
    found = find_branch(load_settings(), branch)
    if not found.is_alive:
        raise BranchUnknown(
            f"the branch {found.facts.id} has ended", remedy="`relive logs` still shows what it said"
        )
    if command[:1] == ["--"]:
        command = command[1:]
    done = subprocess.run(found.command_inside(command), env=dict(os.environ), cwd="/", check=False)
    raise typer.Exit(done.returncode if done.returncode >= 0 else 128 - done.returncode)
