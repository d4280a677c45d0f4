"""Beginning and ending the watch of a container or service."""

from __future__ import annotations

import os
import select
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from relive.agent.capsule.agent_process import CONTAINERS, check_port, sole_start, start_agent
from relive.agent.control.client import ask_agent
from relive.config import Settings
from relive.errors import AgentUnreachable, CapsuleExists, UsageError
from relive.incidents.report.masking import FileMask
from relive.kernel.atomic_write import Durability, replace_file
from relive.kernel.disk_errors import disk_errors
from relive.model.life_paths import LifePaths
from relive.model.watched import WatchFacts, WatchSpec
from relive.sandbox.rootfs import RINGS_DIRECTORY
from relive.watching.life import Watch, life_paths
from relive.watching.state import ContainerState

if TYPE_CHECKING:  # an engine can commit, for which much is imported, and `relive stop` comes here as well
    from relive.watching.engine import Engine

__all__ = ["begin_watch", "end_watch", "upstream_of"]

_ENGINE_VARIABLES = ("CONTAINERS_CONF", "CONTAINERS_STORAGE_CONF", "DOCKER_HOST", "PATH")
_END_LIMIT = 10.0  # [s] for an agent to take the order to end
_GONE_LIMIT = 60.0  # [s] for it to write down what is under way


def begin_watch(settings: Settings, engine: Engine, state: ContainerState, spec: WatchSpec) -> Watch:
    """Start an agent for a container or service, which outlives the caller.

    Raises:
        CapsuleExists: it is watched already.
        UsageError: what is asked for does not fit this container, or the port is taken.
        CapsuleStartFailed, HostIncapable, StoreError: as the agent reports.
    """
    with sole_start(settings.capsules / state.name):
        return _begin_watch(settings, engine, state, spec)


def _begin_watch(settings: Settings, engine: Engine, state: ContainerState, spec: WatchSpec) -> Watch:
    paths = life_paths(settings, state.name, state.id)
    target = state.target or f"{engine.name}:{state.name}"
    if paths.watch.exists() and not paths.closed.exists():
        raise CapsuleExists(
            f"{target} is watched already",
            cause=f"its watch began before, and its agent is in {paths.directory}",
            remedy=f"`relive stop {target}` ends that watch; what is watched runs on",
        )
    if spec.patterns and state.logs == "none":
        if state.target is not None:
            raise UsageError(
                f"{target} has no output that could be searched",
                cause="its standard output and error lead to no file, and a pipe or terminal has a reader already",
                remedy="name a file that it logs to with --log, or leave --log-pattern away",
            )
        raise UsageError(
            f"{state.name} has no output that could be searched",
            cause="it was created with the log driver none",
            remedy="create it again with another --log-driver, or leave --log-pattern away",
        )
    if spec.has_front and spec.listen is not None:
        check_port(spec.listen)
    facts = WatchFacts(
        spec=spec,
        engine=engine.name,
        id=state.id,
        name=state.name,
        command=FileMask.configured(settings).words(state.command),
        directory=state.directory,
        rings=state.mounts.get(str(RINGS_DIRECTORY)) if state.has_recorder else None,
        began=datetime.now(UTC).isoformat(),
        target=state.target,
        environment={name: os.environ[name] for name in _ENGINE_VARIABLES if name in os.environ},
    )
    _lay(paths, facts)
    watch = Watch(paths, facts)
    try:
        start_agent(settings, paths, CONTAINERS, variables=facts.environment)
    except BaseException:
        paths.closed.touch()
        raise
    return watch


def _lay(paths: LifePaths, facts: WatchFacts) -> None:
    """Write what the agent reads. A watch that was ended before goes on in the same recording."""
    with disk_errors("writing down what is watched", paths.directory.parent):
        for directory in (paths.io, paths.recording):
            directory.mkdir(parents=True, exist_ok=True)
        for log in paths.logs:
            log.touch(mode=0o600)
        paths.output_position.unlink(missing_ok=True)
        paths.rings.unlink(missing_ok=True)
        if facts.rings is not None:
            paths.rings.symlink_to(facts.rings)
        replace_file(paths.watch, facts.model_dump_json(indent=2).encode(), durability=Durability.NONE)
        paths.closed.unlink(missing_ok=True)


def upstream_of(state: ContainerState) -> tuple[str, int]:
    """Where a container is reached from the host: its published port.

    Raises:
        UsageError: it has none, or several.
    """
    if len(state.ports) == 1:
        return state.ports[0]
    listed = ", ".join(f"{host}:{port}" for host, port in state.ports)
    raise UsageError(
        f"it is not plain which port of {state.name} --listen is to stand before",
        cause=f"it publishes {listed}" if listed else "it publishes no TCP port",
        remedy="say it with --upstream HOST:PORT, as the host reaches the service",
    )


def end_watch(watch: Watch) -> None:
    """End a watch, durable on return; the container runs on.

    Raises:
        AgentUnreachable: its agent does not answer.
    """
    try:
        pid = int(watch.paths.agent_pid.read_text().split()[0])
        handle = os.pidfd_open(pid)
    except (FileNotFoundError, ProcessLookupError, ValueError, IndexError):
        handle = -1  # then nobody answers
    try:
        ask_agent(watch.paths.agent_socket, {"op": "end"}, limit=_END_LIMIT)
        if handle >= 0 and not select.select([handle], [], [], _GONE_LIMIT)[0]:
            raise AgentUnreachable(
                f"the watch of {watch.target} does not end",
                cause=f"its agent still runs after {_GONE_LIMIT:g} s",
                remedy=f"look into {watch.paths.agent_log}; the container does not depend on it",
            )
    finally:
        if handle >= 0:
            os.close(handle)
