"""``python -m relive.cli``: the command, and what a fork server has imported of it for those that are forked (``forked``)."""

from __future__ import annotations

import importlib
import sys

import typer.main

from relive.agent.control.lean import LEFT_OUT
from relive.cli import app
from relive.cli.forked import COMMANDS
from relive.cli.last_resort import end_broken

__all__ = ["main"]

# What they import when they run.
for _name in ("relive.store.store", "relive.operations.incident_detail", "relive.sandbox.restoring"):
    importlib.import_module(_name)
for _name in COMMANDS:  # and what typer does, when it has one
    typer.main.get_command(app.application_for(_name))


def main() -> None:
    """Run the command that the words of this process say, and raise SystemExit with its status."""
    # What processes that stay leave out (``relive.agent.control.lean``) may be wanted here.
    for name in LEFT_OUT:
        if sys.modules.get(name, sys) is None:
            del sys.modules[name]
    try:
        app.main()
    except Exception as error:
        end_broken(error)


if __name__ == "__main__":
    main()
