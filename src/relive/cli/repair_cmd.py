"""``relive repair``: fetch what is damaged or missing from another store, and make anew what is derived."""

from __future__ import annotations

import typer

from relive.cli.params_options import from_params
from relive.cli.terminal import AsJson, Terminal
from relive.cli.verify_cmd import problem_rows
from relive.config import load_settings
from relive.errors import StoreError
from relive.model.quantities import size
from relive.operations.repairing import RepairParams
from relive.operations.repairing import repair as mend

__all__ = ["repair"]


@from_params(RepairParams, arguments=("refs",), words={"source": ("--from",)})
def repair(params: RepairParams, as_json: AsJson = False) -> None:
    """Fetch what is damaged or missing from another store that still has it, and make anew what is derived

    Reads every byte first. The index, and files that were laid out for branches, are made anew from what is verified. What comes
    from the other store is checked before it replaces anything. The exit status is 0 when all is well afterwards, otherwise 7.
    """
    terminal = Terminal(as_json=as_json)
    found = mend(load_settings(), params, terminal)
    if as_json:
        terminal.answer(found)
    else:
        rows = [["fetched", one.kind.value, one.name[:12], size(one.bytes)] for one in found.fetched]
        if rows:
            terminal.table(rows, ["", "what", "name", "size"], rows, "")
        if found.left:
            terminal.table(found.left, ["what", "name", "problem", "commits"], problem_rows(found.left), "")
    total = size(sum(one.bytes for one in found.fetched))
    left = f"{len(found.left)} problems are left." if found.left else "All is well."
    for text in found.renewed:
        terminal.status(f"Made anew: {text}.")
    terminal.status(f"Fetched {len(found.fetched)} things, {total}. {left}")
    raise typer.Exit(StoreError.exit_status if found.left else 0)
