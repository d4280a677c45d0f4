"""``relive doctor``: what this host can do."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from relive.cli.terminal import AsJson, Terminal
from relive.config import load_settings
from relive.errors import HostIncapable

if TYPE_CHECKING:
    from relive.doctor import Finding

__all__ = ["doctor"]

_WORDS = {"works": "yes", "limited": "limited", "fails": "no"}


def doctor(as_json: AsJson = False) -> None:
    """Find out what works on this host by trying it, and say what to do about the rest

    The exit status is 0 when everything works that is required to run, commit, restore and replay, otherwise 4.
    """
    from relive.operations.health import DoctorParams
    from relive.operations.health import doctor as examine

    terminal = Terminal(as_json=as_json)
    health = examine(load_settings(anyone=True), DoctorParams(), terminal)
    if as_json:
        terminal.answer(health)
    else:
        _show(terminal, health.findings)
    terminal.status(
        "Relive works here."
        if health.ready
        else "Relive does not work here: a required capability is missing."
    )
    raise typer.Exit(0 if health.ready else HostIncapable.exit_status)


def _show(terminal: Terminal, findings: list[Finding]) -> None:
    rows = [
        [
            one.name,
            "required" if one.required else "optional",
            _WORDS[one.outcome],
            f"{one.milliseconds:.0f} ms",
            one.found,
        ]
        for one in findings
    ]
    terminal.table(findings, ["capability", "needed", "works", "took", "found"], rows, "")
    for one in findings:
        if one.cause is not None:
            state = "is limited" if one.outcome == "limited" else "does not work"
            terminal.answer(None, f"\n{one.name} {state}\n  Cause: {one.cause}\n  Remedy: {one.remedy}")
