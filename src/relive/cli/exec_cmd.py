"""``relive exec``: run a command inside a branch."""

from __future__ import annotations

from typing import Annotated

import typer

from relive.config import load_settings
from relive.errors import UsageError
from relive.forkserver.successor import Successor, succeed
from relive.operations.branch_states import find_living
from relive.operations.branches import inside_environment

__all__ = ["exec_"]


def exec_(
    branch: Annotated[str, typer.Argument(help="The branch's id, or a unique beginning of it")],
    command: Annotated[list[str] | None, typer.Argument(help="The command, after --")] = None,
    gdb: Annotated[
        bool,
        typer.Option(
            "--gdb",
            help="Attach gdb, on the host and as root, to a process of it; the command is more words for gdb",
        ),
    ] = False,
    process: Annotated[
        int | None, typer.Option(help="With --gdb: its number inside; without: the first", min=1)
    ] = None,
    _as_json: Annotated[  # looked at where errors are told
        bool,
        typer.Option("--json", help="Tell as JSON why it could not be run; its output is the command's own"),
    ] = False,
) -> None:
    """Run a command inside a branch; its exit status is the command's"""
    found = find_living(load_settings(), branch)
    command = command or []
    if command[:1] == ["--"]:
        command = command[1:]
    if gdb:
        from relive.operations.host_debugging import gdb_on

        succeed(Successor([*gdb_on(found, process), *command], inside_environment(), "/"))
    if not command or process is not None:
        raise UsageError(
            "there is no command to run" if not command else "--process is for --gdb",
            remedy="relive exec BRANCH -- COMMAND, or relive exec --gdb --process N BRANCH",
        )
    # No process of Relive stays beside the command: the terminal, its signals and its end are its own.
    succeed(Successor(found.command_inside(command), inside_environment(), "/"))
