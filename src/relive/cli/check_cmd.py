"""``relive check``: what a commit of a service would meet, before the first one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from relive.cli.terminal import AsJson, Terminal
from relive.config import load_settings
from relive.errors import CommitFailed, UsageError
from relive.model.quantities import duration, size
from relive.model.text import escape

if TYPE_CHECKING:
    from relive.check.estimate import Estimate, Range
    from relive.check.report import CheckReport

__all__ = ["check"]

_STATUSES = {"whole": 0, "partly": 1, "refused": CommitFailed.exit_status}
_VERDICTS = {
    "whole": "Nothing stands against a commit, and nothing is lost or left out, as far as can be seen.",
    "partly": "It can be committed; what is lost or left out stands above.",
    "refused": "As it is now, it cannot be committed.",
}
_VERDICTS_OF_A_COMMAND = {
    "whole": "Nothing is known that stands against it.",
    "partly": "It can be run; what is lost or left out stands above.",
    "refused": "As it is now, it cannot be run under Relive.",
}


def check(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="TARGET | -- COMMAND...",
            help="pid:NUMBER, a capsule's name, podman:NAME or docker:NAME; or, after --, a command and its arguments",
        ),
    ],
    port: Annotated[
        int | None, typer.Option(help="The port that the command will listen on", min=1, max=65535)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Look whether a service can be committed, what would be lost, and what it costs, without touching it

    Reads /proc, asks the kernel for sockets, and looks at files: nothing is stopped, signalled or attached to, and a command is not
    run. docs/check.md says what is looked for, and from what pause and bytes are estimated.

    The exit status is 0 when it can be committed with nothing lost or left out, 1 when something is, 5 when it cannot be committed.
    """
    from relive.operations.checking import CheckParams
    from relive.operations.checking import check as look

    terminal = Terminal(as_json=as_json)
    settings = load_settings()
    if port is not None and not _is_command():
        raise UsageError("--port is for commands", remedy="relive check --port 8000 -- CMD ARGUMENTS")
    if not _is_command() and len(words) > 1:
        raise UsageError(
            f"one target is checked at a time, not {len(words)}", remedy="a command stands after --"
        )
    params = CheckParams(command=words, port=port) if _is_command() else CheckParams(target=words[0])
    report = look(settings, params, terminal)
    terminal.answer(report, lambda: "\n".join(_lines(report)))
    verdicts = _VERDICTS_OF_A_COMMAND if report.pid is None else _VERDICTS
    terminal.status(verdicts[report.verdict])
    if report.capsule_helps:
        terminal.hint("In a capsule it could be: start it with `relive run -- CMD`.")
    raise typer.Exit(_STATUSES[report.verdict])


def _is_command() -> bool:
    """The words stand after ``--``, which typer does not tell."""
    import sys

    return "--" in sys.argv


def _lines(report: CheckReport) -> list[str]:
    lines = [escape(report.target) + (f", {escape(' '.join(report.command))}" if report.pid else "")]
    if report.expected:
        width = max(len(one.name) for one in report.expected)
        lines += ["", *(f"{one.name:{width}}  {escape(one.value)}" for one in report.expected)]
    for one in report.findings:
        about = f"{one.process} (pid {one.pid}): " if one.pid is not None else ""
        lines += ["", f"{one.severity.upper()}  {about}{escape(one.subject)}  [{one.code}]"]
        lines += [f"  Cause: {escape(one.cause)}"]
        if one.remedy is not None:
            lines += [f"  Remedy: {escape(one.remedy)}"]
    if report.estimate is not None:
        lines += ["", *_costs(report.estimate, is_plain=report.target.startswith("pid:"))]
    lines += ["", "Not to be seen from outside:", *(f"  {one}" for one in report.unseen)]
    return lines


def _costs(found: Estimate, *, is_plain: bool) -> list[str]:
    """``is_plain``: each commit of a plain process is a first one."""
    lines = [
        f"tree            processes {found.processes}, threads {found.threads}, descriptors {found.descriptors}",
        f"memory to save  {size(found.memory + found.shared)}, of which {size(found.shared)} shared; "
        f"{size(found.backed)} of files is not saved",
    ]
    if found.open_files:
        lines.append(f"open files      {size(found.open_files)}, copied by each commit of a plain process")
    return [
        *lines,
        f"pause           about {_range(found.pause_us, duration)}",
        f"first commit    about {_range(found.first, size)} in the store",
        f"later commits   {'the same; in a capsule ' if is_plain else ''}about {_range(found.later, size)} each, "
        "by what it writes between them",
    ]


def _range(found: Range, unit: object) -> str:
    assert callable(unit)
    return f"{unit(found.least)} to {unit(found.most)}"
