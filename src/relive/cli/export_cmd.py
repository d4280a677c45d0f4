"""``relive export``: a commit as one file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from relive.cli.terminal import AsJson, KeyFile, Terminal
from relive.config import load_settings
from relive.containers.archive.compression import Compression
from relive.model.quantities import size
from relive.operations.exports import ExportWish, Format
from relive.operations.exports import export as write

__all__ = ["export"]


def export(
    ref: Annotated[
        str, typer.Argument(help="The commit (id, tag, NAME, NAME@{2 minutes ago}), or incident/NUMBER")
    ],
    file: Annotated[Path, typer.Argument(help="The file to write")],
    encrypt: Annotated[bool, typer.Option("--encrypt", help="Encrypt it with the newest key")] = False,
    key_file: KeyFile = None,
    wanted: Annotated[
        Format,
        typer.Option(
            "--format",
            help="For `relive import`; to restore with podman; only to look into; or an OCI image of a checkpoint",
        ),
    ] = Format.RELIVE,
    compress: Annotated[
        Compression | None,
        typer.Option(help="Of a checkpoint archive, by the file's name; of an image's layer, gzip"),
    ] = None,
    incidents: Annotated[
        bool,
        typer.Option(
            help="Also what replays of its incidents need: recorded requests, calls, the error package, other commits"
        ),
    ] = True,
    force: Annotated[bool, typer.Option("--force", "-f", help="Replace a file that exists")] = False,
    as_json: AsJson = False,
) -> None:
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
    wish = ExportWish(
        ref=ref,
        file=file,
        encrypt=encrypt,
        key_file=key_file,
        format=wanted,
        compress=compress,
        incidents=incidents,
        force=force,
    )
    written = write(load_settings(), wish, terminal)
    terminal.answer(written, written.id)
    how = "encrypted" if encrypt else "not encrypted"
    terminal.status(f"Wrote {file}: {size(written.bytes)}, {how}.")
    if written.incidents:
        numbers = ", ".join(map(str, written.incidents))
        terminal.status(f"With it what replays of its incidents need: {numbers}.")
    if wanted is Format.CHECKPOINTCTL and not written.is_container:
        terminal.hint("it is for looking into: no engine can restore it, since the service is no container.")
