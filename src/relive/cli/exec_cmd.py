"""``relive exec``: run a command inside a branch."""

from __future__ import annotations

import subprocess
from typing import Annotated

import typer

from relive.config import load_settings
from relive.operations.branches import find_living, inside_environment

__all__ = ["exec_"]


def exec_(
    branch: Annotated[str, typer.Argument(help="The branch's id, or a unique beginning of it")],
    command: Annotated[list[str], typer.Argument(help="The command, after --")],
    _as_json: Annotated[  # looked at where errors are told
        bool,
        typer.Option("--json", help="Tell as JSON why it could not be run; its output is the command's own"),
    ] = False,
) -> None:
    """Run a command inside a branch; its exit status is the command's"""
    found = find_living(load_settings(), branch)
    if command[:1] == ["--"]:
        command = command[1:]
    done = subprocess.run(found.command_inside(command), env=inside_environment(), cwd="/", check=False)
    raise typer.Exit(done.returncode if done.returncode >= 0 else 128 - done.returncode)
