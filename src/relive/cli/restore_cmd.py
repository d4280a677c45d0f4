"""``relive restore``: bring a commit to life in a sealed sandbox."""

from __future__ import annotations

from typing import Annotated

import typer

from relive.cli.terminal import AsJson, Terminal
from relive.config import load_settings
from relive.model.branch import Clock
from relive.model.quantities import duration
from relive.operations.branches import RestoreWish
from relive.operations.branches import restore as restore_branch

__all__ = ["restore"]


def restore(
    ref: Annotated[str, typer.Argument(help="A commit: id, tag, NAME, or NAME@{2 minutes ago}")],
    publish: Annotated[
        list[str] | None,
        typer.Option("--publish", "-p", help="HOSTPORT:PORT: reach the branch's port from this host"),
    ] = None,
    clock: Annotated[
        Clock, typer.Option(help="The wall clock it sees: as recorded, or now")
    ] = Clock.RECORDED,
    lazy: Annotated[
        bool, typer.Option("--lazy", help="Let it run before its memory is all there; the rest comes behind")
    ] = False,
    stubs: Annotated[
        bool,
        typer.Option(help="Answer what the service says to others from the recording, where there is one"),
    ] = True,
    speed: Annotated[str, typer.Option(help="How fast recorded answers come: 1 as recorded, 10, max")] = "1",
    as_json: AsJson = False,
) -> None:
    """Bring a commit to life as a branch, in a sealed sandbox; prints the branch's id

    The original is not touched, and any number of branches can live side by side. A branch has its own files, processes
    and addresses, and no way out; `--publish` lets this host in. With `--lazy` it runs at once and pages come in as it touches
    them; should they not be able to come, it is stopped.

    Where the service ran with `--record-egress`, its databases and other servers are there too: their connections go on, and what
    is asked is answered as it was recorded after the commit.
    """
    terminal = Terminal(as_json=as_json)
    wish = RestoreWish(ref=ref, publish=publish or [], clock=clock, lazy=lazy, stubs=stubs, speed=speed)
    branch = restore_branch(load_settings(), wish, terminal)
    terminal.answer(branch, branch.id)
    terminal.status(f"Restored {branch.name} in {duration(branch.restore_us)}.")
