"""What ``relive adopt`` and ``relive release`` have in common: how a change of a unit is told."""

from __future__ import annotations

from relive.cli.terminal import Terminal
from relive.operations.units import UnitChange

__all__ = ["show_unit_change"]


def show_unit_change(terminal: Terminal, done: UnitChange, verb: str, *, dry_run: bool) -> None:
    """Show the change as an answer; what it means, and what comes next, as status."""
    terminal.answer(done, done.difference.rstrip("\n") if done.is_changed else "nothing to change")
    for sentence in done.remarks:
        terminal.status(sentence)
    if not done.is_changed:
        terminal.status(f"{done.unit} {verb} already.")
    elif dry_run:
        terminal.status("Nothing was changed (--dry-run).")
    else:
        terminal.status(f"{done.unit} {verb}.")
    if done.next and not dry_run:
        terminal.hint(f"{' && '.join(done.next)}")
