"""``relive push``: send a commit to a remote."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from relive.cli.terminal import AsJson, RemoteUrl, Terminal
from relive.config import load_settings
from relive.model.quantities import rate, size
from relive.remotes.case_transfer import commits_of, meant
from relive.remotes.push import Pushed
from relive.remotes.push import push as send
from relive.remotes.remote import open_remote
from relive.remotes.remote_incidents import push_incident
from relive.store import Store

__all__ = ["push"]


def push(
    remote: RemoteUrl,
    ref: Annotated[
        str, typer.Argument(help="The commit (id, tag, NAME, NAME@{2 minutes ago}), or incident/NUMBER")
    ],
    incidents: Annotated[
        bool,
        typer.Option(
            help="Also what replays of its incidents need: recorded requests, calls, the error package, other commits"
        ),
    ] = True,
    force: Annotated[bool, typer.Option("--force", "-f", help="Move a tag that exists there")] = False,
    as_json: AsJson = False,
) -> None:
    """Send a commit to a remote, of which only what it does not have travels

    Prints the commit's id, by which any host can pull it. If REF is a tag, the remote gets the tag too. Incidents that refer to the
    commit go along with all that a replay needs, so that who pulls it can replay them; of an incident all its commits go. After a
    break run it again: it goes on where it ended. Endpoint and credentials of S3 come from the AWS_* variables.
    """
    terminal = Terminal(as_json=as_json)
    settings = load_settings()
    store = Store(settings.store)
    commit_id, wanted = meant(settings, store, ref, incidents=incidents)
    tag = ref if ref in store.tags() else None
    began = time.monotonic()
    goal = open_remote(remote, make=True)
    pushed = send(store, goal, commit_id, tag=tag, force=force, show=terminal.transfer)
    for commit in {commit: None for one in wanted for commit in commits_of(store, one)}:
        send(store, goal, commit, tag=None, force=False, show=terminal.transfer)
    sent = [one.number for one in wanted if push_incident(settings, store, goal, one, terminal.transfer)]
    facts = _facts(pushed, remote, tag) | {
        "incidents": [one.number for one in wanted],
        "sent_incidents": sent,
    }
    terminal.answer(facts, pushed.commit)
    terminal.status(_sentence(pushed, remote, time.monotonic() - began))
    if wanted:
        numbers = ", ".join(str(one.number) for one in wanted)
        terminal.status(f"With it what replays of its incidents need: {numbers}.")
    if tag is not None:
        terminal.status(f"The tag {tag} names it there.")


def _facts(pushed: Pushed, remote: str, tag: str | None) -> dict[str, object]:
    return {
        "id": pushed.commit,
        "remote": remote,
        "tag": tag,
        "is_new": pushed.is_new,
        "sent_parts": pushed.parts,
        "sent_bytes": pushed.bytes,
        "held_parts": pushed.held,
    }


def _sentence(pushed: Pushed, remote: str, seconds: float) -> str:
    if not pushed.is_new and not pushed.parts:
        return f"{remote} has it already."
    return (
        f"Pushed to {remote}: {size(pushed.bytes)} in {pushed.parts} parts, {rate(pushed.bytes, seconds)}; "
        f"{pushed.held} parts were there."
    )
