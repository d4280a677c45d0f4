"""``relive commit``: commit a capsule or any process tree."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from relive.agent.capsule import find_capsule
from relive.agent.control import ask_agent
from relive.agent.launch import tend_capsules
from relive.cli.terminal import AsJson, Terminal, duration, size
from relive.config import Settings, load_settings, store_key_variable
from relive.engine.capture import capture
from relive.engine.criu import CriuTools
from relive.engine.target import process_target
from relive.engine.watchdog import Watchdog
from relive.errors import UsageError
from relive.model.commit import CommitId, Trigger
from relive.model.text import is_number
from relive.store import Store, StoredCommit

__all__ = ["commit"]


def commit(
    target: Annotated[str, typer.Argument(help="A capsule's name, or pid:NUMBER for any running tree")],
    files: Annotated[
        list[Path] | None,
        typer.Option("--files", help="Commit this file or directory too (pid: targets only)"),
    ] = None,
    tag: Annotated[str | None, typer.Option(help="Give the commit this tag")] = None,
    as_json: AsJson = False,
) -> None:
    """Commit the live state of a target, which runs on

    Prints the commit's id. Says how long the target stood still (pause) and when the commit was safe (durable).
    """
    terminal = Terminal(as_json=as_json)
    settings = load_settings()
    store = Store(settings.store)
    tend_capsules(settings)
    if target.startswith("pid:"):
        stored = _commit_process(settings, store, target, files or [])
    else:
        if files:
            raise UsageError(
                "--files is for pid: targets", cause="a capsule's files are always part of its commits"
            )
        capsule = find_capsule(settings, target)
        limit = settings.commit_limit * 3 + 60
        answer = ask_agent(capsule.paths.agent_socket, {"op": "commit"} | store_key_variable(), limit=limit)
        stored = store.get(CommitId(answer["id"]))
    if tag is not None:
        store.tag(tag, stored.id)
    terminal.answer(_facts(stored), stored.id)
    terminal.status(
        f"Committed {stored.name}: pause {duration(stored.pause_us)}, durable after {duration(stored.durable_us)}, "
        f"{size(stored.bytes)}, of which {size(stored.new_bytes)} new."
    )


def _commit_process(settings: Settings, store: Store, target: str, files: list[Path]) -> StoredCommit:
    number = target.removeprefix("pid:")
    if not is_number(number):
        raise UsageError(f"{target!r} is no target", remedy="write pid:1234, or a capsule's name")
    for path in files:
        if not path.exists():
            raise UsageError(f"--files: there is no {path}", remedy="name an existing file or directory")
    wanted = process_target(int(number), [path.resolve() for path in files])
    with Watchdog(CriuTools(settings.tools_path).watchdog) as watchdog:
        taken = capture(wanted, Trigger.MANUAL, settings=settings, store=store, watchdog=watchdog)
    return taken.store(store, [])


def _facts(stored: StoredCommit) -> dict[str, object]:
    return {
        "id": stored.id,
        "name": stored.name,
        "pause_us": stored.pause_us,
        "durable_us": stored.durable_us,
        "bytes": stored.bytes,
        "new_bytes": stored.new_bytes,
    }
