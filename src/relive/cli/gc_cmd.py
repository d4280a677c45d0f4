"""``relive gc``: free what no commit needs."""

from __future__ import annotations

from relive.cli.params_options import from_params
from relive.cli.terminal import AsJson, Terminal
from relive.config import load_settings
from relive.model.quantities import size
from relive.operations.storage import GcParams
from relive.operations.storage import gc as free

__all__ = ["gc"]


@from_params(GcParams, words={"dry_run": ("--dry-run", "-n")})
def gc(params: GcParams, as_json: AsJson = False) -> None:
    """Free what no commit needs

    Never drops a commit: see `relive retain`. What is useless is condemned by one run and deleted by a later one; packs of
    which most is useless are written anew. Safe while commits are taken and branches restored.
    """
    terminal = Terminal(as_json=as_json)
    found = free(load_settings(), params, terminal)
    would = "would be " if params.dry_run else ""
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
    verb = "Would free" if params.dry_run else "Freed"
    terminal.status(f"{verb} {size(found.freed)}; {size(condemned)} condemned.")
    if found.kept:
        terminal.status(f"Kept states hold their commits: {', '.join(found.kept)}.")
    if found.doubtful:
        terminal.status(f"{len(found.doubtful)} commits are damaged, so that packs and files are left alone.")
        terminal.hint("`relive verify` names what is damaged.")
