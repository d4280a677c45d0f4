"""``relive show``: one commit or one incident in full."""

from __future__ import annotations

from typing import Annotated

import typer

from relive.agent.launch import tend_capsules
from relive.cli.stacks import stack_lines
from relive.cli.terminal import AsJson, Terminal, duration, size, when
from relive.config import load_settings
from relive.model.commit import ContainerFacts, EntryKind, Layer, LayerKind, Manifest
from relive.model.incident import Incident
from relive.model.text import escape, is_number
from relive.replay.stack import find_stack
from relive.store import Store, StoredCommit
from relive.store.incidents import Incidents

__all__ = ["show"]

_SHOWN = 20


def show(
    what: Annotated[
        str, typer.Argument(help="A commit (id, tag, NAME, NAME@{2 minutes ago}), or incident/NUMBER")
    ],
    as_json: AsJson = False,
) -> None:
    """Show what a commit holds, or what is known of an incident"""
    terminal = Terminal(as_json=as_json)
    settings = load_settings()
    tend_capsules(settings)
    number = what.removeprefix("incident/")
    if is_number(number) and (what != number or int(number) < 1000):
        incident = Incidents(settings.incidents).get(int(number))
        terminal.answer(incident, lambda: describe_incident(incident))
        return
    store = Store(settings.store)
    commit = store.resolve(what)
    manifest = store.manifest(commit)
    stored = store.get(commit)
    value = {
        "id": commit,
        **manifest.model_dump(mode="json"),
        "durable_us": stored.durable_us,
        "new_bytes": stored.new_bytes,
    }
    terminal.answer(value, lambda: describe_commit(stored, manifest))


def describe_commit(stored: StoredCommit, manifest: Manifest) -> str:
    """A commit for people."""
    target = manifest.target
    lines = [
        f"commit {stored.id}",
        f"Target:   {target.name} ({' '.join(target.command)})",
        f"Taken:    {when(manifest.taken_wall_ns)}{_on(manifest)}, trigger {manifest.trigger.value}",
        *_container(manifest.container),
        f"Times:    pause {duration(manifest.pause_us)}, durable after {duration(stored.durable_us)}",
        f"Size:     {size(stored.bytes)}, of which {size(stored.new_bytes)} were new",
        *(f"Parent:   {parent}" for parent in manifest.parents),
    ]
    if manifest.cursor is not None:
        open_requests = ", ".join(str(one.request) for one in manifest.cursor.open_requests) or "none"
        lines.append(
            f"Recorded: up to event {manifest.cursor.sequence}; requests being served: {open_requests}"
        )
    if manifest.stopped_by is not None:
        lines.append(f"Stopped:  signal {manifest.stopped_by} withheld from process {manifest.stopped_pid}")
    lines += ["", "Processes:"]
    lines += [
        f"  {one.pid:>6}  {one.command}  (parent {one.parent}, {one.threads} thread{'s' * (one.threads != 1)}, uid {one.uid})"
        for one in target.processes
    ]
    lines += _sockets(manifest)
    lines += _files(manifest)
    return "\n".join(lines)


def _sockets(manifest: Manifest) -> list[str]:
    lines = ["", "Sockets:"]
    lines += [f"  listening on {host}:{port}" for host, port in manifest.listening]
    for one in manifest.connections:
        arrow = "<-" if one.inward else "->"
        lines.append(f"  {one.local[0]}:{one.local[1]} {arrow} {one.peer[0]}:{one.peer[1]}")
    return lines if len(lines) > 2 else []


def _on(manifest: Manifest) -> str:
    """Checkpoint archives do not tell the host."""
    return "" if manifest.container is not None else f" on {manifest.host.name}"


def _container(facts: ContainerFacts | None) -> list[str]:
    if facts is None:
        return []
    what = [f"image {facts.image}"] * bool(facts.image) + [f"runtime {facts.runtime}"] * bool(facts.runtime)
    return [", ".join([f"Engine:   {facts.engine}, container {facts.id[:12]}", *what])]


def _where(layer: Layer) -> str:
    if layer.kind is LayerKind.ARCHIVE:
        return "Files of the checkpoint archive beside its images"
    return f"Files below {layer.point}"


def _files(manifest: Manifest) -> list[str]:
    lines = []
    for layer in manifest.layers:
        entries = [
            one for one in layer.entries if one.kind in (EntryKind.FILE, EntryKind.WHITEOUT, EntryKind.LINK)
        ]
        if not entries:
            continue
        lines += ["", f"{_where(layer)}: {len(entries)}"]
        for one in entries[:_SHOWN]:
            what = "deleted" if one.kind is EntryKind.WHITEOUT else size(one.size)
            lines.append(f"  {escape(one.path)}  {what}")
        if len(entries) > _SHOWN:
            lines.append(f"  ... and {len(entries) - _SHOWN} more (--json lists all)")
        lines += [f"  left out: {one}" for one in layer.left_out]
    return lines


def describe_incident(incident: Incident) -> str:
    """An incident for people."""
    sighting = incident.sighting
    lines = [
        f"incident {incident.number} of {incident.service}: {sighting.summary}",
        f"Seen:     {when(sighting.seen_wall_ns)}, {incident.times} time{'s' * (incident.times != 1)}, kind {sighting.kind.value}",
        f"Before:   {incident.before or 'no commit'}",
        f"At:       {incident.at or 'no commit'}",
    ]
    if incident.latest is not None:
        latest = incident.latest
        lines.append(
            f"Latest:   {when(latest.sighting.seen_wall_ns)}, before it {latest.before or 'no commit'}"
        )
    if sighting.signal is not None:
        lines.append(f"Signal:   {sighting.signal} {sighting.signal_code or ''}".rstrip())
    if sighting.open_requests:
        lines.append(f"Open:     requests {', '.join(map(str, sighting.open_requests))}")
    stack = find_stack(incident.log_tail)
    lines += ["", "Stack:", *stack_lines(stack)] if stack is not None else []
    if stack is None and incident.log_tail:
        lines += [
            "",
            "Last lines of its standard error:",
            *(f"  {line}" for line in incident.log_tail[-_SHOWN:]),
        ]
    lines += ["", f"Replay it with: relive replay {incident.number}"]
    return "\n".join(lines)
