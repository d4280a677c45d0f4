"""``relive eval``: an expression's value in the process as it was."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from relive.cli.terminal import AsJson, Terminal
from relive.config import load_settings
from relive.inspection.words import value_lines
from relive.operations.inspections import EvaluateParams, evaluate

if TYPE_CHECKING:
    from relive.inspection.evaluated import Evaluated

__all__ = ["eval_", "show_value"]


def eval_(
    ref: Annotated[str, typer.Argument(help="A commit: id, tag, NAME, or NAME@{2 minutes ago}")],
    expression: Annotated[str, typer.Argument(help="An expression of Python, or of JavaScript for Node.js")],
    module: Annotated[
        str | None,
        typer.Option(help="Use this module's names; without: the program's, and all modules by their names"),
    ] = None,
    process: Annotated[
        int | None,
        typer.Option(
            help="Its number inside; without: the first whose runtime can be asked, of Python's that with most of the service",
            min=1,
        ),
    ] = None,
    depth: Annotated[
        int, typer.Option(help="Tell what is in the value, too, so many levels deep", min=0, max=20)
    ] = 0,
    referrers: Annotated[
        int, typer.Option(help="Of Python: tell so many of those who refer to the value, too", min=0, max=100)
    ] = 0,
    limit: Annotated[float, typer.Option(help="Seconds after which it is given up", max=300)] = 10.0,
    as_json: AsJson = False,
) -> None:
    """Evaluate an expression of Python or JavaScript in a process as it was, in a throw-away branch

    The branch is sealed, and removed whatever the expression did: raise, hang, kill its process, change something. The exit status
    is 0 when there is a value, else 1.
    """
    terminal = Terminal(as_json=as_json)
    params = EvaluateParams(
        ref=ref,
        expression=expression,
        module=module,
        process=process,
        depth=depth,
        referrers=referrers,
        limit=limit,
    )
    show_value(terminal, evaluate(load_settings(), params, terminal))


def show_value(terminal: Terminal, found: Evaluated) -> None:
    """Show what came of it, and end the command with the status that says so."""
    terminal.answer(found, lambda: "\n".join(value_lines(found)))
    if found.refused:
        terminal.status(
            f"It tried {found.refused} times to reach something outside; nothing leaves a branch."
        )
    if found.outcome != "value":
        raise typer.Exit(1)
