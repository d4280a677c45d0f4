"""``relive show``: one commit or one incident in full."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from relive.cli.terminal import AsJson, Terminal
from relive.config import load_settings
from relive.errors import UsageError
from relive.model.commit import ContainerFacts, EntryKind, Layer, LayerKind, Manifest
from relive.model.quantities import duration, size, when
from relive.model.text import escape, is_number
from relive.operations.commits import CommitDetail, show_commit
from relive.operations.targets import tend

__all__ = ["show"]

_SHOWN = 20


def show(
    what: Annotated[
        str, typer.Argument(help="A commit (id, tag, NAME, NAME@{2 minutes ago}), or incident/NUMBER")
    ],
    everything: Annotated[
        bool,
        typer.Option(
            "--all",
            help="Of an incident: with the libraries' frames, all locals, every row and every reading",
        ),
    ] = False,
    page: Annotated[
        Path | None, typer.Option("--html", help="Write an incident as a page to this file, replacing it")
    ] = None,
    spans: Annotated[
        Path | None,
        typer.Option("--otlp", help="Write its request as OpenTelemetry spans (OTLP/JSON) to this file"),
    ] = None,
    har: Annotated[
        Path | None, typer.Option("--har", help="Write its HTTP requests as HAR 1.2 to this file")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show what a commit holds, or what is known of an incident

    Of an incident: the exception, the frames with their locals as they were when it was raised, what the request did until then,
    and the commits and recordings that belong to it. Secrets stay masked, also in what is written to files.
    """
    terminal = Terminal(as_json=as_json)
    settings = load_settings()
    number = what.removeprefix("incident/")
    if is_number(number) and (what != number or int(number) < 1000):
        _show_incident(terminal, int(number), page, spans, har, everything=everything)
        return
    if page or spans or har:
        raise UsageError("--html, --otlp and --har are for incidents", cause=f"{what!r} is none")
    tend(settings, terminal)
    commit = show_commit(settings, what)
    terminal.answer(commit, lambda: describe_commit(commit))


def _show_incident(
    terminal: Terminal,
    number: int,
    page: Path | None,
    spans: Path | None,
    har: Path | None,
    *,
    everything: bool,
) -> None:
    # A commit is shown without any of the rooms that understand an incident.
    from relive.cli.accounts import show_account
    from relive.operations.incident_detail import Rendering, rendered, show_incident

    account = show_incident(load_settings(), number, terminal)
    for path, form in ((page, Rendering.HTML), (spans, Rendering.OTLP), (har, Rendering.HAR)):
        if path is not None:
            _write(path, rendered(account, form))
            terminal.status(f"Wrote {path}.")
    if terminal.as_json:
        # The incident's own fields, and beside them what else is known.
        value = account.model_dump(mode="json")
        terminal.answer({**value.pop("incident"), **value})
    else:
        show_account(terminal, account, everything=everything)


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, "utf-8", errors="backslashreplace")
    except OSError as error:
        raise UsageError(f"{path} cannot be written", cause=error.strerror) from error


def describe_commit(manifest: CommitDetail) -> str:
    """A commit for people."""
    target = manifest.target
    lines = [
        f"commit {manifest.id}",
        *["Suspect:  it may hold what had changed when it was taken, and is not restored"] * manifest.suspect,
        *["Compared: not since it was taken: a micro-commit that believed the kernel's objects"]
        * manifest.uncompared,
        f"Target:   {target.name} ({' '.join(target.command)})",
        f"Taken:    {when(manifest.taken_wall_ns)}{_on(manifest)}, trigger {manifest.trigger.value}",
        *_container(manifest.container),
        f"Times:    pause {duration(manifest.pause_us)}, durable after {duration(manifest.durable_us)}",
        f"Size:     {size(manifest.bytes)}, of which {size(manifest.new_bytes)} were new",
        *(f"Parent:   {parent}" for parent in manifest.parents),
    ]
    if manifest.cursor is not None:
        open_requests = ", ".join(str(one.request) for one in manifest.cursor.open_requests) or "none"
        lines.append(
            f"Recorded: up to event {manifest.cursor.sequence}; requests being served: {open_requests}"
        )
    if manifest.stopped_by is not None:
        lines.append(f"Stopped:  signal {manifest.stopped_by} withheld from process {manifest.stopped_pid}")
    elif manifest.stopped_pid is not None:
        lines.append(f"Stopped:  process {manifest.stopped_pid} stands before its exit")
    lines += ["", "Processes:"]
    lines += [
        f"  {one.pid:>6}  {one.command}  (parent {one.parent}, {one.threads} thread{'s' * (one.threads != 1)}, uid {one.uid})"
        for one in target.processes
    ]
    lines += _sockets(manifest)
    lines += _changed_files(manifest)
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


def _changed_files(manifest: Manifest) -> list[str]:
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
