"""``relive restore``: bring a commit to life in a sealed sandbox."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from relive.cli.giving_up import taken_back_when_asked_to_end
from relive.cli.params_options import from_params
from relive.cli.state_files import with_contents
from relive.cli.terminal import AsJson, Terminal
from relive.config import load_settings
from relive.errors import RestoreFailed, UsageError
from relive.model.quantities import duration
from relive.operations.restoring import RestoreParams
from relive.operations.restoring import restore as restore_branch
from relive.operations.restoring_many import MOST, ManyRestored, RestoreManyParams, restore_many

__all__ = ["RestoringEngine", "restore"]

_MANY = RestoreManyParams.model_fields


class RestoringEngine(StrEnum):
    """Who runs what comes back, if not Relive itself."""

    PODMAN = "podman"


@from_params(RestoreParams, arguments=("ref",), words={"publish": ("--publish", "-p")})
def restore(
    params: RestoreParams,
    as_: Annotated[
        RestoringEngine | None,
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
    count: Annotated[
        int | None, typer.Option("--count", help=_MANY["count"].description, min=1, max=MOST)
    ] = None,
    jobs: Annotated[
        int | None, typer.Option("--jobs", help=f"With --count: {_MANY['jobs'].description}", min=1, max=64)
    ] = None,
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

    `--set` and `--write` change its state before it is given to you: what would have happened had this variable been another?
    `--keep-as TAG` makes a commit of that state, as `relive commit BRANCH` does at any later moment.

    With `--count` it comes to life that many times, side by side, and the ids are printed in the order of their numbers. What has
    to be read and checked for all of them is done once. One that fails does not fail the others; the exit status is 6 then.

    `--as podman` makes a container of podman again out of a container's commit, with a name and ports of its own. It is
    sealed as well: its network has no way out, connections that were open are closed, and `--publish` lets this host in.
    `podman stop` and `podman rm` end it.
    """
    terminal = Terminal(as_json=as_json)
    params = params.model_copy(update={"write": with_contents(params.write)})
    if count is not None:
        if (
            as_ is not None
            or name
            or share_volumes
            or params.publish
            or params.set
            or params.write
            or params.keep_as
        ):
            raise UsageError(
                "--count goes with neither --as, --name, --share-volumes, --publish, --set, --write nor --keep-as",
                cause="a name, a port of this host, or another state can be one branch's only",
                remedy="leave them out, or restore one by one",
            )
        many = RestoreManyParams(
            **params.model_dump(exclude={"publish", "set", "write", "module", "keep_as"}),
            count=count,
            jobs=jobs,
        )
        with taken_back_when_asked_to_end():
            made = restore_many(load_settings(), many, terminal)
        _answer_many(made, terminal)
        return
    if jobs is not None:
        raise UsageError("--jobs is for --count", remedy="add --count")
    if as_ is RestoringEngine.PODMAN:
        from relive.operations.containers import ContainerParams, restore_as_podman

        _refuse_for_podman(params)
        order = ContainerParams(
            ref=params.ref, name=name, publish=params.publish, share_volumes=share_volumes
        )
        revived = restore_as_podman(load_settings(), order, terminal)
        terminal.answer(revived, revived.id)
        terminal.status(f"Restored {revived.name} in {duration(revived.restore_us)}.")
        return
    if name or share_volumes:
        raise UsageError("--name and --share-volumes are for --as podman", remedy="add --as podman")
    branch = restore_branch(load_settings(), params, terminal)
    terminal.answer(branch, branch.id)
    terminal.status(f"Restored {branch.name} in {duration(branch.restore_us)}.")


def _answer_many(made: ManyRestored, terminal: Terminal) -> None:
    alive = [one.branch.id for one in made.branches if one.branch is not None]
    terminal.answer(made, "\n".join(alive))
    for one in made.branches:
        if one.error is not None:
            terminal.status(f"{one.number} was not restored: {one.error.message}: {one.error.cause}.")
    terminal.status(f"Restored {len(alive)} of {len(made.branches)} in {duration(int(made.seconds * 1e6))}.")
    if made.failed:
        raise typer.Exit(RestoreFailed.exit_status)


def _refuse_for_podman(params: RestoreParams) -> None:
    if params != RestoreParams(ref=params.ref, publish=params.publish):
        raise UsageError(
            "--clients, --clock, --lazy, --stubs, --speed, --set, --write and --keep-as are for Relive's own sandbox",
            cause="a container of podman sees this host's clock, has all its memory, and nobody stands for the outside",
            remedy="leave them out, or leave --as podman out",
        )
