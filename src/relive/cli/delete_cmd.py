"""``relive delete``: drop commits that nothing holds."""

from __future__ import annotations

from typing import Annotated

import typer

from relive.cli.terminal import AsJson, Terminal
from relive.config import load_settings
from relive.operations.deleting import delete_commit

__all__ = ["delete"]


def delete(
    refs: Annotated[list[str], typer.Argument(help="Commits (id, tag, NAME, NAME@{2 minutes ago})")],
    as_json: AsJson = False,
) -> None:
    """Drop commits that neither a tag nor an incident holds

    What only they needed is freed by `relive gc`.
    """
    terminal = Terminal(as_json=as_json)
    settings = load_settings()
    gone = [delete_commit(settings, ref) for ref in refs]
    terminal.answer(gone, "\n".join(one.id for one in gone))
