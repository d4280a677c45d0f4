"""Which engines of containers there are, and which of them a target means."""

from __future__ import annotations

from relive.agent.containers.docker import Docker
from relive.agent.containers.engine import Engine
from relive.agent.containers.podman import Podman
from relive.errors import UsageError

__all__ = ["engine_named", "engine_of"]

_ENGINES: dict[str, type[Engine]] = {"podman": Podman, "docker": Docker}


def engine_named(name: str) -> Engine:
    """The engine of that name, as ``WatchFacts`` has it; raises UsageError where there is none."""
    if name not in _ENGINES:
        raise UsageError(f"there is no engine {name!r}", remedy=f"write {' or '.join(_ENGINES)}")
    return _ENGINES[name]()


def engine_of(target: str) -> tuple[Engine, str]:
    """(engine, name of the container) of ``podman:web``; raises UsageError for targets of other kinds."""
    kind, _, name = target.partition(":")
    if kind not in _ENGINES or not name:
        raise UsageError(
            f"{target!r} is no container",
            cause=f"only containers are watched, and their targets begin with {' or '.join(f'{one}:' for one in _ENGINES)}",
            remedy="write podman:NAME or docker:NAME; a service of its own is started, and watched, by `relive run`",
        )
    return _ENGINES[kind](), name
