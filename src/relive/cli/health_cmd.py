"""``relive health``: whether what runs is protected."""

from __future__ import annotations

from typing import Annotated

import typer

from relive.cli.terminal import AsJson, Terminal
from relive.config import load_settings
from relive.errors import CapsuleError
from relive.model.protection import Trouble
from relive.model.quantities import age
from relive.operations.targets import RunningTarget, named_targets

__all__ = ["health", "in_words"]


def health(
    names: Annotated[
        list[str] | None,
        typer.Argument(help="Capsules (names), or what is watched (targets, names); all without"),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Tell whether services are protected: committed, watched and recorded as they should be

    For a monitor. The exit status is 0 when each of them is, 9 when one is not, 3 when nothing runs under a name. What is told with
    it is since when, how often it was tried in vain, and why; Relive goes on trying by itself.
    """
    terminal = Terminal(as_json=as_json)
    found = named_targets(load_settings(), names or [], terminal)
    values = [
        {
            "name": one.name,
            "protected": not one.troubles,
            "troubles": [trouble.model_dump() for trouble in one.troubles],
        }
        for one in found
    ]
    terminal.table(values, ["service", "protected", "why"], [_row(one) for one in found], "Nothing runs.")
    troubles = [trouble for one in found for trouble in one.troubles]
    for remedy in dict.fromkeys(trouble.remedy for trouble in troubles if trouble.remedy is not None):
        terminal.status(f"Remedy: {remedy}")
    raise typer.Exit(CapsuleError.exit_status if troubles else 0)


def _row(one: RunningTarget) -> list[str]:
    why = "; ".join(in_words(trouble) for trouble in one.troubles)
    return [one.name, "no" if one.troubles else "yes", why]


def in_words(trouble: Trouble) -> str:
    """What does not work, for how long, how often it was tried, and why: without a full stop."""
    since = "" if trouble.since_wall_ns is None else f" for {age(trouble.since_wall_ns)}"
    times = f", tried {trouble.times} times" if trouble.times > 1 else ""
    cause = "" if trouble.cause is None else f": {trouble.cause}"
    return f"{trouble.part}{since}{times} ({trouble.code}): {trouble.message}{cause}"
