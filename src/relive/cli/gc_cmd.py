"""``relive gc``: free what no commit needs."""

from __future__ import annotations

from typing import Annotated

import typer

from relive.cli.terminal import AsJson, Terminal, size
from relive.config import load_settings
from relive.store import Store
from relive.upkeep.garbage import Thing
from relive.upkeep.gc import GRACE, Collected, collect, foresee

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
    store = Store(load_settings().store)
    found = (foresee if dry_run else collect)(store, grace=grace, progress=terminal.progress)
    would = "would be " if dry_run else ""
    lines = [
        (f"{would}deleted", found.decision.delete),
        (f"{would}condemned", found.decision.condemn),
        ("condemned before", found.decision.wait),
    ]
    rows = [
        [state, thing.kind.value, thing.name[:12], size(found.sizes[thing])]
        for state, things in lines
        for thing in things
    ]
    rows += [[f"{would}repacked", "pack", name[:12], ""] for name in found.repacked]
    if as_json:
        terminal.answer(_value(found, dry_run))
    elif rows:
        terminal.table(rows, ["state", "what", "name", "size"], rows, "")
    condemned = sum(found.sizes[thing] for thing in found.decision.condemn + found.decision.wait)
    verb = "Would free" if dry_run else "Freed"
    terminal.status(f"{verb} {size(found.freed)}; {size(condemned)} condemned.")
    if found.doubtful:
        terminal.status(f"{len(found.doubtful)} commits are damaged, so that packs and files are left alone.")
        terminal.hint("`relive verify` names what is damaged.")


def _value(found: Collected, dry_run: bool) -> dict[str, object]:
    def listed(things: list[Thing]) -> list[dict[str, object]]:
        return [{"kind": one.kind.value, "name": one.name, "bytes": found.sizes[one]} for one in things]

    return {
        "dry_run": dry_run,
        "freed": found.freed,
        "deleted": listed(found.decision.delete),
        "condemned": listed(found.decision.condemn),
        "waiting": listed(found.decision.wait),
        "repacked": found.repacked,
        "doubtful": found.doubtful,
    }
