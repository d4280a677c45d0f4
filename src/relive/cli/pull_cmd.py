"""``relive pull``: fetch a commit from a remote."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from relive.checkpoint.criu import CriuTools
from relive.checkpoint.target import host_facts
from relive.cli.terminal import AsJson, RemoteUrl, Terminal
from relive.config import load_settings
from relive.model.quantities import rate, size
from relive.remotes.case_transfer import Taken
from relive.remotes.pull import Pulled
from relive.remotes.pull import pull as fetch
from relive.remotes.references import find
from relive.remotes.remote import open_remote
from relive.remotes.remote_incidents import fetch_incident, records_of
from relive.store import Store

__all__ = ["incident_sentence", "pull"]


def pull(
    remote: RemoteUrl,
    ref: Annotated[str, typer.Argument(help="An id or its unique beginning, or a tag that was pushed")],
    tag: Annotated[
        str | None, typer.Option(help="Give the commit this tag here; without, that of REF")
    ] = None,
    incidents: Annotated[
        bool, typer.Option(help="Also the incidents that were pushed with it, and the commits that they need")
    ] = True,
    force: Annotated[
        bool, typer.Option("--force", "-f", help="Fetch it although this host cannot run it; move a tag")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Fetch a commit from a remote, of which only what is not here travels

    Prints the commit's id. Says before anything travels if this host cannot run the commit, or does not trust who signed it.
    After a break run it again: it goes on where it ended. A commit without a tag may be dropped as this host's own ones are.

    Incidents that were pushed with it come along, with all that `relive replay` needs. Each gets the next free number here; pulled
    again it keeps that.
    """
    terminal = Terminal(as_json=as_json)
    settings = load_settings()
    store = Store(settings.store)
    source = open_remote(remote, make=False)
    found = find(source, ref)
    here = host_facts(CriuTools(settings.tools_path).version)
    name = tag if tag is not None else found.tag
    if name is not None:
        store.check_tag(name, found.commit, force=force)
    began = time.monotonic()
    pulled = fetch(store, source, found.commit, here, force=force, show=terminal.transfer)
    records = records_of(source, store.anatomy.keyring, found.commit) if incidents else []
    for commit in {commit: None for one in records for commit in one.commits if commit != found.commit}:
        fetch(store, source, commit, here, force=force, show=terminal.transfer)
    taken = [fetch_incident(settings, store, source, one, terminal.transfer) for one in records]
    if name is not None:
        store.tag(name, pulled.commit, force=True)
    facts = _facts(pulled, remote, name) | {
        "incidents": [one.number for one in taken],
        "new_incidents": [one.number for one in taken if one.is_new],
    }
    terminal.answer(facts, pulled.commit)
    terminal.status(_sentence(pulled, remote, time.monotonic() - began))
    for one in taken:
        terminal.status(incident_sentence(one))
    if name is None:
        terminal.hint(f"keep it with `relive tag NAME {pulled.commit[:10]}`")


def incident_sentence(taken: Taken) -> str:
    """What is told of an incident that came along."""
    came = "came with it" if taken.is_new else "is here already"
    return f"Incident {taken.number} {came}: `relive show {taken.number}`, `relive replay {taken.number}`."


def _facts(pulled: Pulled, remote: str, tag: str | None) -> dict[str, object]:
    return {
        "id": pulled.commit,
        "remote": remote,
        "tag": tag,
        "is_new": pulled.is_new,
        "fetched_parts": pulled.parts,
        "fetched_bytes": pulled.bytes,
        "held_parts": pulled.held,
    }


def _sentence(pulled: Pulled, remote: str, seconds: float) -> str:
    if not pulled.is_new:
        return "It is here already."
    return (
        f"Pulled from {remote}: {size(pulled.bytes)} in {pulled.parts} parts, {rate(pulled.bytes, seconds)}; "
        f"{pulled.held} parts were here."
    )
