"""``relive import``: a commit from an archive, Relive's own or that of a container."""

from __future__ import annotations

from relive.cli.arrived import report_incidents, report_untagged
from relive.cli.params_options import from_params
from relive.cli.terminal import AsJson, Terminal
from relive.config import load_settings
from relive.model.quantities import size
from relive.operations.imports import ImportParams, import_commit

__all__ = ["import_"]


@from_params(ImportParams, arguments=("file",), words={"force": ("--force", "-f")})
def import_(params: ImportParams, as_json: AsJson = False) -> None:
    """Take a commit in that was exported to a file, or a container's checkpoint archive

    All of it is checked before the store shows anything. It says so if this host cannot run the commit, or does not trust
    who signed it. Incidents that are in it come along, with all that `relive replay` needs; each gets the next free number here,
    and imported again it keeps that.

    A checkpoint archive (as of `podman container checkpoint --export`; tar, tar.gz or tar.zst) becomes a commit
    of the container, of which a later checkpoint costs only what changed. Nobody has signed such a file: the commit is
    signed by this host.
    """
    terminal = Terminal(as_json=as_json)
    done = import_commit(load_settings(), params, terminal)
    terminal.answer(done, done.id)
    if done.is_new:
        terminal.status(
            f"Imported {size(done.taken_bytes)} in {done.taken_parts} parts; {done.held_parts} parts were here."
        )
    else:
        terminal.status("It is here already.")
    report_incidents(terminal, done.incidents, done.new_incidents)
    report_untagged(terminal, done.id, done.tag)
