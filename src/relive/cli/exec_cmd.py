"""``relive exec``: run a command inside a branch."""

from __future__ import annotations

from typing import Annotated

import typer

from relive.config import load_settings
from relive.forkserver.successor import Successor, succeed
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
    # No process of Relive stays beside the command: the terminal, its signals and its end are its own.
    succeed(Successor(found.command_inside(command), inside_environment(), "/"))
