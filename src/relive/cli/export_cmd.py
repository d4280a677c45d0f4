"""``relive export``: a commit as one file."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from relive.cli.terminal import AsJson, KeyFile, Terminal, size
from relive.config import load_settings
from relive.errors import UsageError
from relive.exchange.checkpoint.compression import Compression, by_suffix
from relive.exchange.checkpoint.exporting import export_checkpoint
from relive.exchange.envelope import read_keys
from relive.exchange.exporting import Exported
from relive.exchange.exporting import export as write
from relive.store import Store

__all__ = ["Format", "export"]


class Format(StrEnum):
    """What is written."""

    RELIVE = "relive"
    PODMAN = "podman"
    CHECKPOINTCTL = "checkpointctl"


def export(
    ref: Annotated[str, typer.Argument(help="The commit (id, tag, NAME, NAME@{2 minutes ago})")],
    file: Annotated[Path, typer.Argument(help="The file to write")],
    encrypt: Annotated[bool, typer.Option("--encrypt", help="Encrypt it with the newest key")] = False,
    key_file: KeyFile = None,
    wanted: Annotated[
        Format,
        typer.Option("--format", help="For `relive import`; to restore with podman; or only to look into"),
    ] = Format.RELIVE,
    compress: Annotated[
        Compression | None,
        typer.Option(help="Of a checkpoint archive; by the file's name if it is not given"),
    ] = None,
    force: Annotated[bool, typer.Option("--force", "-f", help="Replace a file that exists")] = False,
    as_json: AsJson = False,
) -> None:
    """Write a commit to one file, with all it needs

    `relive import` takes it in on another host. Who can read the file can read the memory of the service, unless it is
    encrypted; keys are Fernet's, the newest stands first in their file.

    `--format podman` writes the commit of a container as a checkpoint archive again, for `podman container restore
    --import`. `--format checkpointctl` does so with every commit; of a service that is no container the archive can be looked
    into (`checkpointctl inspect`) but not be restored.
    """
    terminal = Terminal(as_json=as_json)
    settings = load_settings()
    if key_file is not None and not encrypt:
        raise UsageError("--key-file is for --encrypt", remedy="add --encrypt, or leave --key-file out")
    store = Store(settings.store)
    if wanted is Format.RELIVE:
        if compress is not None:
            raise UsageError(
                "--compress is for checkpoint archives",
                remedy="leave it out: what Relive keeps is compressed",
            )
        keys = read_keys(key_file or settings.export_keys) if encrypt else None
        exported = write(store, store.resolve(ref), file, keys=keys, force=force, show=terminal.transfer)
    else:
        exported = _export_checkpoint(
            terminal, store, ref, file, wanted, compress, encrypt=encrypt, force=force
        )
    facts = {
        "id": exported.commit,
        "file": str(file),
        "format": wanted.value,
        "encrypted": encrypt,
        "parts": exported.parts,
        "bytes": exported.bytes,
    }
    terminal.answer(facts, exported.commit)
    how = "encrypted" if encrypt else "not encrypted"
    terminal.status(f"Wrote {file}: {size(exported.bytes)}, {how}.")
    if wanted is Format.CHECKPOINTCTL and not store.manifest(exported.commit).container:
        terminal.hint("it is for looking into: no engine can restore it, since the service is no container.")


def _export_checkpoint(
    terminal: Terminal,
    store: Store,
    ref: str,
    file: Path,
    wanted: Format,
    compress: Compression | None,
    *,
    encrypt: bool,
    force: bool,
) -> Exported:
    if encrypt:
        raise UsageError(
            "a checkpoint archive is not encrypted",
            cause="neither podman nor checkpointctl could read it",
            remedy="encrypt the file yourself, or leave --format out",
        )
    return export_checkpoint(
        store,
        store.resolve(ref),
        file,
        compress or by_suffix(file),
        only_to_inspect=wanted is Format.CHECKPOINTCTL,
        force=force,
        show=terminal.transfer,
    )
