"""``relive pull``: fetch a commit from a remote."""

from __future__ import annotations

import time

from relive.cli.arrived import report_incidents, report_untagged
from relive.cli.params_options import from_params
from relive.cli.terminal import AsJson, Terminal
from relive.config import load_settings
from relive.model.quantities import rate, size
from relive.operations.remotes import Pulled, PullParams
from relive.operations.remotes import pull as fetch

__all__ = ["pull"]


@from_params(PullParams, arguments=("remote", "ref"), words={"force": ("--force", "-f")})
def pull(params: PullParams, as_json: AsJson = False) -> None:
    """Fetch a commit from a remote, of which only what is not here travels

    Prints the commit's id. Says before anything travels if this host cannot run the commit, or does not trust who signed it.
    After a break run it again: it goes on where it ended. A commit without a tag may be dropped as this host's own ones are.

    Incidents that were pushed with it come along, with all that `relive replay` needs. Each gets the next free number here; pulled
    again it keeps that.
    """
    terminal = Terminal(as_json=as_json)
    began = time.monotonic()
    pulled = fetch(load_settings(), params, terminal)
    terminal.answer(pulled, pulled.id)
    terminal.status(_sentence(pulled, time.monotonic() - began))
    report_incidents(terminal, pulled.incidents, pulled.new_incidents)
    report_untagged(terminal, pulled.id, pulled.tag)


def _sentence(pulled: Pulled, seconds: float) -> str:
    if not pulled.is_new:
        return "It is here already."
    return (
        f"Pulled from {pulled.remote}: {size(pulled.fetched_bytes)} in {pulled.fetched_parts} parts, "
        f"{rate(pulled.fetched_bytes, seconds)}; {pulled.held_parts} parts were here."
    )
