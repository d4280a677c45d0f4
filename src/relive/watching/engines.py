"""Who knows how what is watched is, and which of them a target means."""

from __future__ import annotations

from relive.errors import UsageError
from relive.model.watched import WatchSpec
from relive.watching.docker_engine import Docker
from relive.watching.engine import Engine
from relive.watching.podman_engine import Podman
from relive.watching.processes.process import Processes
from relive.watching.processes.unit import Units

__all__ = ["engine_named", "engine_of"]

_PLAIN: dict[str, type[Podman] | type[Docker]] = {"podman": Podman, "docker": Docker}
_SERVICES: dict[str, type[Processes] | type[Units]] = {"pid": Processes, "unit": Units}


def engine_named(name: str, spec: WatchSpec | None = None, *, called: str | None = None) -> Engine:
    """Who knows of what is called like that, as ``WatchFacts`` has it; raises UsageError where there is none.

    Args:
        spec: of the watch, if there is one by now; called: the name of a service that is not watched yet.
    """
    if name in _PLAIN:
        return _PLAIN[name]()
    if name in _SERVICES:
        return _SERVICES[name](spec, called)
    raise UsageError(f"there is no engine {name!r}", remedy=f"write {' or '.join(_PLAIN)}")


def engine_of(target: str, spec: WatchSpec | None = None, *, called: str | None = None) -> tuple[Engine, str]:
    """(who knows, name) of ``podman:web`` or ``pid:1234``; raises UsageError for targets of other kinds."""
    kind, _, name = target.partition(":")
    if kind not in {**_PLAIN, **_SERVICES} or not name:
        raise UsageError(
            f"{target!r} cannot be watched",
            cause="it is neither a container nor a process or unit: targets begin with podman:, docker:, pid: or unit:",
            remedy="write podman:NAME, docker:NAME, pid:NUMBER or unit:NAME; `relive run` starts a service, and watches it",
        )
    return engine_named(kind, spec, called=called), name
