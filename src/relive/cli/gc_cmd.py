"""``relive gc``: free what no commit needs."""

from __future__ import annotations

from typing import Annotated

import typer

from relive.cli.terminal import AsJson, Terminal
from relive.config import load_settings
from relive.maintenance.gc import GRACE
from relive.model.quantities import size
from relive.operations.storage import GcWish
from relive.operations.storage import gc as free

__all__ = ["gc"]


def gc(
    grace: Annotated[
        float,
        typer.Option(help="Seconds for which something must have been useless before it is deleted", min=0),
    ] = GRACE,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", "-n", help="Only say what would go and what that would free")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Free what no commit needs

    Never drops a commit: see `relive retain`. What is useless is condemned by one run and deleted by a later one; packs of
    which most is useless are written anew. Safe while commits are taken and branches restored.
    """
    terminal = Terminal(as_json=as_json)
    found = free(load_settings(), GcWish(grace=grace, dry_run=dry_run), terminal)
    would = "would be " if dry_run else ""
    lines = [
        (f"{would}deleted", found.deleted),
        (f"{would}condemned", found.condemned),
        ("condemned before", found.waiting),
    ]
    rows = [
        [state, one.kind.value, one.name[:12], size(one.bytes)] for state, things in lines for one in things
    ]
    rows += [[f"{would}repacked", "pack", name[:12], ""] for name in found.repacked]
    if as_json:
        terminal.answer(found)
    elif rows:
        terminal.table(rows, ["state", "what", "name", "size"], rows, "")
    condemned = sum(one.bytes for one in [*found.condemned, *found.waiting])
    verb = "Would free" if dry_run else "Freed"
    terminal.status(f"{verb} {size(found.freed)}; {size(condemned)} condemned.")
    if found.doubtful:
        terminal.status(f"{len(found.doubtful)} commits are damaged, so that packs and files are left alone.")
        terminal.hint("`relive verify` names what is damaged.")
