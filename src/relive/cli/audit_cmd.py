"""``relive audit``: whether the server's audit log is as it was written."""

from __future__ import annotations

import typer

from relive.cli.terminal import AsJson, Terminal
from relive.config import load_settings
from relive.server.audit import Audit

__all__ = ["audit"]

audit = typer.Typer(help="Check what the server noted of requests", no_args_is_help=True)


@audit.command("verify")
def verify(as_json: AsJson = False) -> None:
    """Check that no entry of the audit log was changed, taken out or moved

    Prints the number and the hash of the last entry. Note them elsewhere now and then: entries cut off at the end are
    only noticed by who knows that there were more.
    """
    terminal = Terminal(as_json=as_json)
    sound = Audit(load_settings().server).verify()
    terminal.answer(sound, f"{sound.last} {sound.hash}")
    terminal.status(f"{sound.entries} entries from number {sound.first} on are as they were written.")
