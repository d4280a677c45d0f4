"""``relive restore``: bring a commit to life in a sealed sandbox."""

from __future__ import annotations

from typing import Annotated

import typer

from relive.agent.launch import tend_capsules
from relive.cli.terminal import AsJson, Terminal, duration
from relive.config import Settings, load_settings
from relive.model.branch import Clock
from relive.model.capsule import LifePaths, parse_address
from relive.model.commit import Manifest
from relive.protocols.known import protocol_of
from relive.replay.stubs.plan import Stubs
from relive.replay.stubs.process import answer_branch
from relive.replay.stubs.speed import parse_speed
from relive.replay.stubs.stage import Stage
from relive.replay.stubs.window import read_egress
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
    stubs: Annotated[
        bool,
        typer.Option(help="Answer what the service says to others from the recording, where there is one"),
    ] = True,
    speed: Annotated[str, typer.Option(help="How fast recorded answers come: 1 as recorded, 10, max")] = "1",
    as_json: AsJson = False,
) -> None:
    """Bring a commit to life as a branch, in a sealed sandbox; prints the branch's id

    The original is not touched, and any number of branches can live side by side. A branch has its own files, processes
    and addresses, and no way out; `--publish` lets this host in. With `--lazy` it runs at once and pages come in as it touches
    them; should they not be able to come, it is stopped.

    Where the service ran with `--record-egress`, its databases and other servers are there too: their connections go on, and what
    is asked is answered as it was recorded after the commit.
    """
    terminal = Terminal(as_json=as_json)
    pace = parse_speed(speed)
    settings = load_settings()
    tend_capsules(settings)
    store = Store(settings.store)
    wanted = [_parse_publication(text) for text in publish or []]
    commit = store.resolve(ref)
    manifest = store.manifest(commit)
    stage = Stage(_recorded(settings, manifest) if stubs else None, pace)
    branch = restore_branch(settings, store, commit, clock=clock, lazily=lazy, outside=stage.outside)
    try:
        if stage.plan is not None:
            answer_branch(branch, stage.plan, pace, [port for _, port in manifest.listening], {})
        for host, host_port, port in wanted:
            publish_port(branch, host, host_port, port)
    except BaseException:
        branch.stop()
        raise
    terminal.answer(branch.facts, branch.facts.id)
    terminal.status(f"Restored {branch.facts.name} in {duration(branch.facts.restore_us)}.")


def _recorded(settings: Settings, manifest: Manifest) -> Stubs | None:
    """What its service said to others, where that was recorded on this host."""
    if manifest.target.life is None:
        return None
    paths = LifePaths(settings.capsules / manifest.target.name / manifest.target.life)
    egress = read_egress(paths.egress, manifest.taken_monotonic_ns)
    return Stubs(egress, protocol_of, authority=paths.authority) if egress is not None else None


def _parse_publication(text: str) -> tuple[str, int, int]:
    outer, _, inner = text.rpartition(":")
    host, host_port = parse_address(outer)
    return host, host_port, parse_address(inner)[1]
