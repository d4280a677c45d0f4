"""``python -m relive.agent DIRECTORY [--ready FD] [--handed JSON]``: run the agent of the life whose directory is given.

With a ``state.json`` in the directory it takes over a running capsule, else it starts the service that its standard
input describes (CapsuleSpec as JSON). To descriptor ``FD`` it writes one JSON line: ``{"ok": true}``, or
``{"error": {...}}`` if the service could not be started. What the service is to get from the starter is described by ``--handed``
(``relive.agent.capsule.inherited``).
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import signal
import sys
from pathlib import Path

import relive.agent.control.lean  # noqa: F401 - before all others
from relive.agent.agent import Agent
from relive.agent.capsule.file_tracking import hold_listener
from relive.agent.capsule.inherited import InheritedDescriptors
from relive.agent.capsule.leftovers import in_use
from relive.agent.capsule.lives import Capsule
from relive.agent.capsule.memory_cgroup import MemoryGroup
from relive.agent.capsule.starting import start_service
from relive.agent.control.process import log_to, note_pid, notify_starter
from relive.agent.failures.watch import hold_limit
from relive.config import load_settings
from relive.errors import ReliveError
from relive.model.capsule import CapsuleFacts, CapsuleSpec
from relive.model.life_paths import LifePaths
from relive.signals.client import TracerProcess
from relive.store import Store

__all__ = ["main"]

_ENDING = 1.0  # [s] for what was begun of a service that did not start


def main() -> int:
    """Start or take over, then serve until the capsule has ended."""
    parser = argparse.ArgumentParser(prog="relive.agent")
    parser.add_argument("directory", type=Path)
    parser.add_argument("--ready", type=int)
    parser.add_argument(
        "--handed", type=InheritedDescriptors.model_validate_json, default=InheritedDescriptors()
    )
    arguments = parser.parse_args()
    paths = LifePaths(arguments.directory)
    settings = load_settings()
    log_to(paths.agent_log, settings)
    tracer: TracerProcess | None = None
    group: MemoryGroup | None = None
    try:
        Store(settings.store).close()  # a store that cannot be opened is told before anything is started
        note_pid(paths)
        name = f"{paths.directory.parent.name}-{paths.directory.name}"
        if paths.state.exists():
            facts = CapsuleFacts.model_validate_json(paths.state.read_bytes())
            group = MemoryGroup.make(name, facts.spec.memory)
            listener = hold_listener(facts.init)
        else:
            spec = CapsuleSpec.model_validate_json(sys.stdin.buffer.read())
            is_unit = arguments.handed.is_unit
            group = MemoryGroup.of_unit() if is_unit else MemoryGroup.make(name, spec.memory)
            # The tracer takes a moment to start, and what kills the service in its first second is to find it there. Without
            # it now, the agent starts another later.
            with contextlib.suppress(OSError):
                tracer = TracerProcess(hold_limit(settings), may_fork=settings.fork_server)
            # The service is started before there is any other thread: see spawn_first_process. Whatever can fail has been done by
            # then: who is told that it did not start must not find it running.
            with in_use():
                started = start_service(settings, spec, paths, group, arguments.handed)
            facts, listener = started.facts, started.listener
            if tracer is not None:
                tracer.attach(facts.root)
            arguments.handed.close()
    except ReliveError as error:
        if tracer is not None:
            tracer.close()
        if group is not None and not paths.state.exists():
            group.remove(_ENDING)
        notify_starter(arguments.ready, {"error": error.as_json()})
        return error.exit_status
    # A supervisor that tells all processes of a unit to end means the service, with which the agent ends by itself.
    signal.signal(signal.SIGTERM, lambda _number, _frame: None)
    notify_starter(arguments.ready, {"ok": True})

    async def serve() -> None:
        await Agent(settings, Capsule(paths, facts), group, listener, tracer).run()

    asyncio.run(serve())
    return 0


if __name__ == "__main__":
    sys.exit(main())
