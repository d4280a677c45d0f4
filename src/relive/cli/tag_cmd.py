"""``relive tag``: names that keep commits."""

from __future__ import annotations

from typing import Annotated

import typer

from relive.cli.terminal import AsJson, Terminal
from relive.config import load_settings
from relive.errors import UsageError
from relive.store import Store

__all__ = ["tag"]


def tag(
    name: Annotated[str | None, typer.Argument(help="The tag")] = None,
    ref: Annotated[str | None, typer.Argument(help="The commit it shall name")] = None,
    delete: Annotated[bool, typer.Option("--delete", "-d", help="Remove the tag; the commit stays")] = False,
    force: Annotated[bool, typer.Option("--force", "-f", help="Move a tag that exists")] = False,
    as_json: AsJson = False,
) -> None:
    """List tags, or give a commit a tag, or remove one

    A tagged commit is never dropped.
    """
    terminal = Terminal(as_json=as_json)
    store = Store(load_settings().store)
    if name is None:
        tags = store.tags()
        terminal.table(
            [{"tag": one, "id": commit} for one, commit in tags.items()],
            ["tag", "commit"],
            [[one, commit[:10]] for one, commit in tags.items()],
            "There are no tags.",
        )
    elif delete:
        store.untag(name)
        terminal.answer({"deleted": name}, f"deleted {name}")
    elif ref is None:
        raise UsageError("which commit?", remedy=f"write `relive tag {name} REF`")
    else:
        commit = store.resolve(ref)
        store.tag(name, commit, force=force)
        terminal.answer({"tag": name, "id": commit}, commit)
