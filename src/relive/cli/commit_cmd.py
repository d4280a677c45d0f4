"""``relive commit``: commit a capsule, a container or any process tree."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from relive.cli.terminal import AsJson, Terminal
from relive.config import load_settings
from relive.model.quantities import duration, size
from relive.operations.committing import CommitWish
from relive.operations.committing import commit as take_commit

__all__ = ["commit"]


def commit(
    target: Annotated[
        str,
        typer.Argument(
            help="A capsule's name, podman:NAME for a container, or pid:NUMBER for any running tree"
        ),
    ],
    files: Annotated[
        list[Path] | None,
        typer.Option("--files", help="Commit this file or directory too (pid: targets only)"),
    ] = None,
    with_volumes: Annotated[
        bool,
        typer.Option("--with-volumes", help="Commit what a container has mounted and can write to, as well"),
    ] = False,
    with_image: Annotated[
        bool, typer.Option("--with-image", help="Keep a container's image in the commit, as well")
    ] = False,
    tag: Annotated[str | None, typer.Option(help="Give the commit this tag")] = None,
    as_json: AsJson = False,
) -> None:
    """Commit the live state of a target, which runs on

    Prints the commit's id. Says how long the target stood still (pause) and when the commit was safe (durable).

    A container's commit holds its memory and what it changed in its file system; its image and its volumes by choice. The
    container is podman's as root sees it, by name or id.
    """
    terminal = Terminal(as_json=as_json)
    wish = CommitWish(
        target=target, files=files or [], with_volumes=with_volumes, with_image=with_image, tag=tag
    )
    taken = take_commit(load_settings(), wish, terminal)
    terminal.answer(taken, taken.id)
    terminal.status(
        f"Committed {taken.name}: pause {duration(taken.pause_us)}, durable after {duration(taken.durable_us)}, "
        f"{size(taken.bytes)}, of which {size(taken.new_bytes)} new."
    )
