"""``python -m relive.cli``: the command, and what a fork server has imported of it for those that are forked (``forked``)."""

from __future__ import annotations

import atexit
import importlib
import os
import sys
import threading

import typer.main

from relive.agent.control.lean import LEFT_OUT
from relive.cli import app
from relive.cli.forked import COMMANDS
from relive.cli.last_resort import end_broken
from relive.forkserver.successor import tell_end

__all__ = ["main"]

# What they import when they run.
for _name in ("relive.store.store", "relive.operations.incident_detail", "relive.sandbox.restoring"):
    importlib.import_module(_name)
for _name in COMMANDS:  # and what typer does, when it has one
    typer.main.get_command(app.application_for(_name))


def main() -> None:
    """Run the command that the words of this process say, and end the process."""
    # What processes that stay leave out (``relive.agent.control.lean``) may be wanted here.
    for name in LEFT_OUT:
        if sys.modules.get(name, sys) is None:
            del sys.modules[name]
    try:
        app.main()
    except SystemExit as end:
        _end(end.code if isinstance(end.code, int) else 0)
    except Exception as error:
        end_broken(error)


def _end(status: int) -> None:
    """As ``sys.exit`` would, without taking all modules apart: a fork would copy the memory of each for that."""
    threading._shutdown()  # type: ignore[attr-defined]  # as ``multiprocessing`` ends a fork
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        tell_end(status)
        os._exit(status)


if __name__ == "__main__":
    main()
