"""``relive restore``: bring a commit to life in a sealed sandbox."""

from __future__ import annotations

from typing import Annotated

import typer

from relive.agent.launch import tend_capsules
from relive.cli.terminal import AsJson, Terminal, duration
from relive.config import load_settings
from relive.model.branch import Clock
from relive.model.capsule import parse_address
from relive.sandbox.branch import restore as restore_branch
from relive.sandbox.publish import publish as publish_port
from relive.store import Store

__all__ = ["restore"]


def restore(
    ref: Annotated[str, typer.Argument(help="A commit: id, tag, NAME, or NAME@{2 minutes ago}")],
    publish: Annotated[
        list[str] | None,
        typer.Option("--publish", "-p", help="HOSTPORT:PORT: reach the branch's port from this host"),
    ] = None,
    clock: Annotated[
        Clock, typer.Option(help="The wall clock it sees: as recorded, or now")
    ] = Clock.RECORDED,
    lazy: Annotated[
        bool, typer.Option("--lazy", help="Let it run before its memory is all there; the rest comes behind")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Bring a commit to life as a branch, in a sealed sandbox; prints the branch's id

    The original is not touched, and any number of branches can live side by side. A branch has its own files, processes
    and addresses, and no way out; `--publish` lets this host in. With `--lazy` it runs at once and pages come in as it touches
    them; should they not be able to come, it is stopped.
    """
    terminal = Terminal(as_json=as_json)
    settings = load_settings()
    tend_capsules(settings)
    store = Store(settings.store)
    wanted = [_parse_publication(text) for text in publish or []]
    branch = restore_branch(settings, store, store.resolve(ref), clock=clock, lazily=lazy)
    try:
        for host, host_port, port in wanted:
            publish_port(branch, host, host_port, port)
    except BaseException:
        branch.stop()
        raise
    terminal.answer(branch.facts, branch.facts.id)
    terminal.status(f"Restored {branch.facts.name} in {duration(branch.facts.restore_us)}.")


def _parse_publication(text: str) -> tuple[str, int, int]:
    outer, _, inner = text.rpartition(":")
    host, host_port = parse_address(outer)
    return host, host_port, parse_address(inner)[1]
