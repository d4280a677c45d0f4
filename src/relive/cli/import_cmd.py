"""``relive import``: a commit from an archive, Relive's own or that of a container."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from relive.checkpoint.criu import CriuTools
from relive.checkpoint.target import host_facts
from relive.cli.pull_cmd import incident_sentence
from relive.cli.terminal import AsJson, KeyFile, Terminal
from relive.config import load_settings
from relive.model.quantities import size
from relive.operations.imports import import_archive
from relive.remotes.envelope import read_keys
from relive.store import Store

__all__ = ["import_"]


def import_(
    file: Annotated[
        Path,
        typer.Argument(help="What `relive export`, or podman, CRI-O or the kubelet as a checkpoint wrote"),
    ],
    tag: Annotated[str | None, typer.Option(help="Give the commit this tag")] = None,
    key_file: KeyFile = None,
    incidents: Annotated[
        bool, typer.Option(help="Also the incidents that are in it, and the commits that they need")
    ] = True,
    force: Annotated[
        bool, typer.Option("--force", "-f", help="Take it in although this host cannot run it; move a tag")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Take a commit in that was exported to a file, or a container's checkpoint archive

    All of it is checked before the store shows anything. It says so if this host cannot run the commit, or does not trust
    who signed it. Incidents that are in it come along, with all that `relive replay` needs; each gets the next free number here,
    and imported again it keeps that.

    A checkpoint archive (as of `podman container checkpoint --export`; tar, tar.gz or tar.zst) becomes a commit
    of the container, of which a later checkpoint costs only what changed. Nobody has signed such a file: the commit is
    signed by this host.
    """
    terminal = Terminal(as_json=as_json)
    settings = load_settings()
    store = Store(settings.store)
    imported = import_archive(
        store,
        file,
        host_facts(CriuTools(settings.tools_path).version),
        keys=lambda: read_keys(key_file or settings.export_keys),
        force=force,
        show=terminal.transfer,
        settings=settings if incidents else None,
    )
    if tag is not None:
        store.tag(tag, imported.commit, force=force)
    facts = {
        "id": imported.commit,
        "file": str(file),
        "tag": tag,
        "is_new": imported.is_new,
        "taken_parts": imported.parts,
        "taken_bytes": imported.bytes,
        "held_parts": imported.held,
        "incidents": [one.number for one in imported.incidents],
        "new_incidents": [one.number for one in imported.incidents if one.is_new],
    }
    terminal.answer(facts, imported.commit)
    if imported.is_new:
        terminal.status(
            f"Imported {size(imported.bytes)} in {imported.parts} parts; {imported.held} parts were here."
        )
    else:
        terminal.status("It is here already.")
    for one in imported.incidents:
        terminal.status(incident_sentence(one))
    if tag is None:
        terminal.hint(f"keep it with `relive tag NAME {imported.commit[:10]}`")
