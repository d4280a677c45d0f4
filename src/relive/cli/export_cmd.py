"""``relive export``: a commit as one file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from relive.cli.terminal import AsJson, KeyFile, Terminal, size
from relive.config import load_settings
from relive.errors import UsageError
from relive.exchange.envelope import read_keys
from relive.exchange.exporting import export as write
from relive.store import Store

__all__ = ["export"]


def export(
    ref: Annotated[str, typer.Argument(help="The commit (id, tag, NAME, NAME@{2 minutes ago})")],
    file: Annotated[Path, typer.Argument(help="The file to write")],
    encrypt: Annotated[bool, typer.Option("--encrypt", help="Encrypt it with the newest key")] = False,
    key_file: KeyFile = None,
    force: Annotated[bool, typer.Option("--force", "-f", help="Replace a file that exists")] = False,
    as_json: AsJson = False,
) -> None:
    """Write a commit to one file, with all it needs

    `relive import` takes it in on another host. Who can read the file can read the memory of the service, unless it is
    encrypted; keys are Fernet's, the newest stands first in their file.
    """
    terminal = Terminal(as_json=as_json)
    settings = load_settings()
    if key_file is not None and not encrypt:
        raise UsageError("--key-file is for --encrypt", remedy="add --encrypt, or leave --key-file out")
    keys = read_keys(key_file or settings.export_keys) if encrypt else None
    store = Store(settings.store)
    exported = write(store, store.resolve(ref), file, keys=keys, force=force, show=terminal.transfer)
    facts = {
        "id": exported.commit,
        "file": str(file),
        "encrypted": encrypt,
        "parts": exported.parts,
        "bytes": exported.bytes,
    }
    terminal.answer(facts, exported.commit)
    how = "encrypted" if encrypt else "not encrypted"
    terminal.status(f"Wrote {file}: {size(exported.bytes)}, {how}.")
