"""``relive restore``: bring a commit to life in a sealed sandbox."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from relive.cli.terminal import AsJson, Terminal
from relive.config import load_settings
from relive.errors import UsageError
from relive.model.branch import Clients, Clock
from relive.model.quantities import duration

__all__ = ["Engine", "restore"]


class Engine(StrEnum):
    """Who runs what comes back, if not Relive itself."""

    PODMAN = "podman"


def restore(
    ref: Annotated[str, typer.Argument(help="A commit: id, tag, NAME, or NAME@{2 minutes ago}")],
    publish: Annotated[
        list[str] | None,
        typer.Option("--publish", "-p", help="HOSTPORT:PORT: reach the branch's port from this host"),
    ] = None,
    clock: Annotated[
        Clock, typer.Option(help="The wall clock it sees: as recorded, or now")
    ] = Clock.RECORDED,
    clients: Annotated[
        Clients,
        typer.Option(
            help="Connections that clients had: they stay open and say nothing, or are closed as if the clients had crashed"
        ),
    ] = Clients.KEEP,
    lazy: Annotated[
        bool, typer.Option("--lazy", help="Let it run before its memory is all there; the rest comes behind")
    ] = False,
    stubs: Annotated[
        bool,
        typer.Option(help="Answer what the service says to others from the recording, where there is one"),
    ] = True,
    as_: Annotated[
        Engine | None,
        typer.Option("--as", help="Let podman run the commit of one of its containers, as a container again"),
    ] = None,
    name: Annotated[str, typer.Option(help="With --as podman: the container's new name")] = "",
    share_volumes: Annotated[
        bool,
        typer.Option(
            "--share-volumes",
            help="With --as podman: what was mounted and not committed is used together with the original",
        ),
    ] = False,
    speed: Annotated[str, typer.Option(help="How fast recorded answers come: 1 as recorded, 10, max")] = "1",
    as_json: AsJson = False,
) -> None:
    """Bring a commit to life as a branch, in a sealed sandbox; prints the branch's id

    The original is not touched, and any number of branches can live side by side. A branch has its own files, processes
    and addresses, and no way out; `--publish` lets this host in. With `--lazy` it runs at once and pages come in as it touches
    them; should they not be able to come, it is stopped.

    Where the service ran with `--record-egress`, its databases and other servers are there too: their connections go on, and what
    is asked is answered as it was recorded after the commit.

    A database's sessions of clients hold their locks for as long as they are open, and in a branch nobody ends them: to use such a
    branch, restore it with `--clients close`.

    `--as podman` makes a container of podman again out of a container's commit, with a name and ports of its own. It is
    sealed as well: its network has no way out, connections that were open are closed, and `--publish` lets this host in.
    `podman stop` and `podman rm` end it.
    """
    terminal = Terminal(as_json=as_json)
    if as_ is Engine.PODMAN:
        from relive.operations.containers import ContainerWish, restore_as_podman

        _refuse_for_podman(clients=clients, clock=clock, lazy=lazy, stubs=stubs, speed=speed)
        order = ContainerWish(ref=ref, name=name, publish=publish or [], share_volumes=share_volumes)
        revived = restore_as_podman(load_settings(), order, terminal)
        terminal.answer(revived, revived.id)
        terminal.status(f"Restored {revived.name} in {duration(revived.restore_us)}.")
        return
    if name or share_volumes:
        raise UsageError("--name and --share-volumes are for --as podman", remedy="add --as podman")
    from relive.operations.restoring import RestoreWish
    from relive.operations.restoring import restore as restore_branch

    wish = RestoreWish(
        ref=ref, publish=publish or [], clock=clock, clients=clients, lazy=lazy, stubs=stubs, speed=speed
    )
    branch = restore_branch(load_settings(), wish, terminal)
    terminal.answer(branch, branch.id)
    terminal.status(f"Restored {branch.name} in {duration(branch.restore_us)}.")


def _refuse_for_podman(*, clients: Clients, clock: Clock, lazy: bool, stubs: bool, speed: str) -> None:
    if clients is not Clients.KEEP or clock is not Clock.RECORDED or lazy or not stubs or speed != "1":
        raise UsageError(
            "--clients, --clock, --lazy, --stubs and --speed are for Relive's own sandbox",
            cause="a container of podman sees this host's clock, has all its memory, and nobody stands for the outside",
            remedy="leave them out, or leave --as podman out",
        )
