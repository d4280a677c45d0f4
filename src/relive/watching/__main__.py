"""``python -m relive.watching DIRECTORY [--ready FD]``: run the agent of the watch whose directory is given.

In it lies ``watch.json``. To descriptor ``FD`` it writes one JSON line when it watches: ``{"ok": true}`` or ``{"error": {...}}``.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from pathlib import Path

import relive.agent.control.lean  # noqa: F401 - before all others
from relive.agent.control.process import log_to, note_pid, notify_starter
from relive.config import Settings, load_settings
from relive.errors import ReliveError
from relive.model.life_paths import LifePaths
from relive.model.watched import WatchFacts
from relive.store import Store
from relive.watching.agent import ContainerAgent
from relive.watching.engines import engine_named
from relive.watching.life import Watch

__all__ = ["main"]


def main() -> int:
    """Watch until that is ended or the container is gone."""
    parser = argparse.ArgumentParser(prog="relive.watching")
    parser.add_argument("directory", type=Path)
    parser.add_argument("--ready", type=int)
    arguments = parser.parse_args()
    paths = LifePaths(arguments.directory)
    settings = load_settings()
    log_to(paths.agent_log, settings)
    try:
        Store(settings.store).close()  # a store that cannot be opened is told before anything begins
        facts = WatchFacts.model_validate_json(paths.watch.read_bytes())
        note_pid(paths)
        asyncio.run(_serve(settings, Watch(paths, facts), arguments.ready))
    except ReliveError as error:
        notify_starter(arguments.ready, {"error": error.as_json()})
        return error.exit_status
    return 0


async def _serve(settings: Settings, watch: Watch, ready: int | None) -> None:
    agent = ContainerAgent(settings, watch, engine_named(watch.facts.engine, watch.facts.spec))
    await agent.run(lambda: notify_starter(ready, {"ok": True}))


if __name__ == "__main__":
    sys.exit(main())
