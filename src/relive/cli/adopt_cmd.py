"""``relive adopt``: have a unit of systemd run its service under Relive."""

from __future__ import annotations

from relive.cli.params_options import from_params
from relive.cli.terminal import AsJson, Terminal
from relive.cli.units import show_unit_change
from relive.config import load_settings
from relive.operations.units import AdoptParams
from relive.operations.units import adopt as write

__all__ = ["adopt"]


@from_params(
    AdoptParams,
    arguments=("unit",),
    words={"unconfined": ("--without-confinement",), "dry_run": ("--dry-run", "-n")},
)
def adopt(params: AdoptParams, as_json: AsJson = False) -> None:
    """Have a systemd unit run its service under Relive, by a drop-in

    Writes /etc/systemd/system/UNIT.d/50-relive.conf, shows it and changes nothing else. In it ExecStart= runs the same command by
    `relive run`, as the unit's user. `relive release UNIT` removes it.
    """
    terminal = Terminal(as_json=as_json)
    done = write(load_settings(), params, terminal)
    show_unit_change(terminal, done, "is adopted", dry_run=params.dry_run)
