"""``relive repair``: fetch what is damaged or missing from another store, and make anew what is derived."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from relive.cli.terminal import AsJson, Terminal
from relive.cli.verify_cmd import problem_rows
from relive.config import load_settings
from relive.errors import StoreError
from relive.maintenance.repair import Repaired
from relive.maintenance.repair import repair as repair_store
from relive.maintenance.verify import verify
from relive.model.quantities import size
from relive.remotes.healing import open_source
from relive.store import Store

__all__ = ["repair"]


def repair(
    source: Annotated[
        str | None,
        typer.Option(
            "--from",
            help="What still has it: a store's directory, or a remote (s3://, file://); without it only what is derived is mended",
        ),
    ] = None,
    refs: Annotated[
        list[str] | None, typer.Argument(help="Commits to repair; all, and the tags, where none is named")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Fetch what is damaged or missing from another store that still has it, and make anew what is derived

    Reads every byte first. The index, and files that were laid out for branches, are made anew from what is verified. What comes
    from the other store is checked before it replaces anything. The exit status is 0 when all is well afterwards, otherwise 7.
    """
    terminal = Terminal(as_json=as_json)
    store = Store(load_settings().store)
    commits = [store.resolve(ref) for ref in refs] if refs else None
    renewed = store.renew_derived()
    if source is not None:
        found = repair_store(store, open_source(source), commits, progress=terminal.progress)
    else:
        found = Repaired([], verify(store, commits, data=True, progress=terminal.progress).problems)
    if as_json:
        terminal.answer(
            {
                "renewed": renewed,
                "fetched": [asdict(one) for one in found.fetched],
                "left": [asdict(one) for one in found.left],
            }
        )
    else:
        rows = [["fetched", one.kind.value, one.name[:12], size(one.bytes)] for one in found.fetched]
        if rows:
            terminal.table(rows, ["", "what", "name", "size"], rows, "")
        if found.left:
            terminal.table(found.left, ["what", "name", "problem", "commits"], problem_rows(found.left), "")
    total = size(sum(one.bytes for one in found.fetched))
    left = f"{len(found.left)} problems are left." if found.left else "All is well."
    for text in renewed:
        terminal.status(f"Made anew: {text}.")
    terminal.status(f"Fetched {len(found.fetched)} things, {total}. {left}")
    raise typer.Exit(StoreError.exit_status if found.left else 0)
