"""``relive tag``: names that keep commits."""

from __future__ import annotations

from typing import Annotated

import typer

from relive.cli.terminal import AsJson, Terminal
from relive.config import load_settings
from relive.errors import UsageError
from relive.operations.tags import add_tag, delete_tag, list_tags

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
    settings = load_settings()
    if name is None:
        tags = list_tags(settings)
        rows = [[one.tag, one.id[:10]] for one in tags]
        terminal.table(tags, ["tag", "commit"], rows, "There are no tags.")
    elif delete:
        delete_tag(settings, name)
        terminal.answer({"deleted": name}, f"deleted {name}")
    elif ref is None:
        raise UsageError("which commit?", remedy=f"write `relive tag {name} REF`")
    else:
        made = add_tag(settings, name, ref, force=force)
        terminal.answer(made, made.id)
