"""``relive release``: take back what ``relive adopt`` wrote."""

from __future__ import annotations

from relive.cli.params_options import from_params
from relive.cli.terminal import AsJson, Terminal
from relive.cli.units import show_unit_change
from relive.config import load_settings
from relive.operations.units import ReleaseParams
from relive.operations.units import release as remove

__all__ = ["release"]


@from_params(ReleaseParams, arguments=("unit",), words={"dry_run": ("--dry-run", "-n")})
def release(params: ReleaseParams, as_json: AsJson = False) -> None:
    """Have a systemd unit run its service without Relive again

    Removes the drop-in that `relive adopt` wrote, shows it and changes nothing else.
    """
    terminal = Terminal(as_json=as_json)
    done = remove(load_settings(anyone=True), params, terminal)
    show_unit_change(terminal, done, "is released", dry_run=params.dry_run)
