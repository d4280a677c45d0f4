"""``relive export``: a commit as one file."""

from __future__ import annotations

from relive.cli.params_options import from_params
from relive.cli.terminal import AsJson, Terminal
from relive.config import load_settings
from relive.model.quantities import size
from relive.operations.exports import ExportParams, Format
from relive.operations.exports import export as write

__all__ = ["export"]


@from_params(
    ExportParams,
    arguments=("ref", "file"),
    words={"format": ("--format",), "force": ("--force", "-f")},
)
def export(params: ExportParams, as_json: AsJson = False) -> None:
    """Write a commit to one file, with all it needs

    `relive import` takes it in on another host. Who can read the file can read the memory of the service, unless it is
    encrypted; keys are Fernet's, the newest stands first in their file. Incidents that refer to the commit go along, with all
    that a replay needs; of incident/NUMBER that one alone, with all its commits.

    `--format podman` writes the commit of a container as a checkpoint archive again, for `podman container restore
    --import`. `--format checkpointctl` does so with every commit; of a service that is no container the archive can be looked
    into (`checkpointctl inspect`) but not be restored.

    `--format oci` writes an image of a container's commit, for registries: `podman load` and `podman container restore`, or
    Kubernetes, which restores a container from it where its image is named.
    """
    terminal = Terminal(as_json=as_json)
    written = write(load_settings(), params, terminal)
    terminal.answer(written, written.id)
    how = "encrypted" if params.encrypt else "not encrypted"
    terminal.status(f"Wrote {params.file}: {size(written.bytes)}, {how}.")
    if written.incidents:
        numbers = ", ".join(map(str, written.incidents))
        terminal.status(f"With it what replays of its incidents need: {numbers}.")
    if params.format is Format.CHECKPOINTCTL and not written.is_container:
        terminal.hint("it is for looking into: no engine can restore it, since the service is no container.")
