"""``relive retain``: drop old commits by a schedule."""

from __future__ import annotations

from relive.cli.params_options import from_params
from relive.cli.terminal import AsJson, Terminal
from relive.config import load_settings
from relive.model.quantities import age, size, when
from relive.operations.retaining import RetainParams
from relive.operations.retaining import retain as drop

__all__ = ["retain"]


@from_params(RetainParams, arguments=("service",), words={"dry_run": ("--dry-run", "-n")})
def retain(params: RetainParams, as_json: AsJson = False) -> None:
    """Drop old commits, keeping the newest and one of each of so many minutes, hours, days, months

    Only minutes (hours, ...) count in which there is a commit, so nothing is dropped because time went by. The newest commit,
    tagged commits and those of incidents always stay. The agent of a capsule does the same now and then, by the settings.
    """
    terminal = Terminal(as_json=as_json)
    done = drop(load_settings(), params, terminal)
    if as_json:
        terminal.answer(done)
    else:
        rows = [
            [one.id[:10], one.name, when(one.taken_wall_ns), age(one.taken_wall_ns), size(one.bytes)]
            for one in done.dropped
        ]
        columns = ["commit", "target", "taken", "ago", "size"]
        terminal.table(done.dropped, columns, rows, "Nothing is to be dropped.")
    verb = "Would drop" if done.dry_run else "Dropped"
    terminal.status(f"{verb} {len(done.dropped)} of {done.kept + len(done.dropped)} commits.")
