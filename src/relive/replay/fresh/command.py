"""What a fresh process is started as: the command line of the service as it was recorded, or another one."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from relive.errors import UsageError
from relive.replay.fresh.evidence import FreshInput
from relive.replay.fresh.request import PLACEHOLDER

__all__ = ["StartCommand", "start_for"]


@dataclass(frozen=True, slots=True)
class StartCommand:
    """Attributes:
    user: name of the user it runs as; None: the caller.
    port: where it will listen, as far as that is known; address: the host it binds to then.
    """

    command: list[str]
    directory: str
    user: str | None
    port: int | None
    address: str | None
    notes: list[str]


def start_for(case: FreshInput, given: Sequence[str], port: int | None) -> StartCommand:
    """How to start it.

    Args:
        given: the command line to be used in the place of the recorded one; empty: that.
        port: where the service listens; None: as recorded, else wherever it does.

    Raises:
        UsageError: it is not known what was started, or in which directory.
    """
    launch, package = case.launch, case.package
    directory = launch.directory if launch is not None else package.cwd if package is not None else ""
    if not Path(directory).is_absolute() or "\0" in directory:
        raise UsageError("the working directory of the service is not known", cause=f"it says {directory!r}")
    notes: list[str] = []
    command = list(given)
    if not command and case.is_job:
        raise _no_queue(case)
    if not command and launch is not None:
        command = list(launch.command)
        if any(PLACEHOLDER.search(word) for word in command):
            notes.append(
                "placeholders stand on the command line for secrets: name the command after -- to supply them"
            )
    if not command:
        command = _from_arguments(package.argv if package is not None else [])
        notes.append("how the service was started is not kept: its program was run with the arguments it had")
    if any("\0" in word for word in command):
        raise UsageError("the command line cannot be executed", cause="a word of it holds a zero byte")
    user = launch.user if launch is not None else None
    address = launch.address if launch is not None else None
    if port is None and address is not None and not given:
        port = address[1]
    return StartCommand(command, directory, user, port, address[0] if address is not None else None, notes)


def _no_queue(case: FreshInput) -> UsageError:
    name = case.failed_request.method if case.failed_request is not None else ""
    module, _, function = name.rpartition(".")
    known = bool(module) and all(part.isidentifier() for part in name.split("."))
    words = f"import {module}; {module}.{function}(...)" if known else "import tasks; tasks.charge(17)"
    return UsageError(
        f"incident {case.incident.number} failed in a job, and a sealed worker has no queue to take it from",
        cause=f"its function is {name!r}",
        remedy=f"name a command that does the job: relive reproduce {case.incident.number} -- python -c '{words}'",
    )


def _from_arguments(argv: list[str]) -> list[str]:
    if not argv or not argv[0] or argv[0].startswith("-"):
        raise UsageError(
            "it is not known how the service was started",
            cause="neither its command line nor its program is kept",
            remedy="name the command after --",
        )
    is_program = os.access(argv[0], os.X_OK) and not argv[0].endswith(".py")
    return argv if is_program else ["python3", *argv]
