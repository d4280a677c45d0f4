"""Starting agents: for a new life, and again for a capsule whose agent died."""

from __future__ import annotations

import contextlib
import shutil
from functools import partial

from relive.agent.capsule import Capsule, all_lives, new_life
from relive.agent.containers.launch import tend_watches
from relive.agent.injection import remove_rings
from relive.agent.starting import agent_lives, check_port, replace_agent, sole_start, start_agent
from relive.config import Settings
from relive.errors import ReliveError
from relive.model.capsule import CapsuleFacts, CapsuleSpec

__all__ = ["agent_is_alive", "launch", "tend_capsules"]

_MODULE = "relive.agent"


def launch(settings: Settings, spec: CapsuleSpec) -> Capsule:
    """Start a service in a capsule, with an agent of its own that outlives the caller.

    Raises:
        CapsuleExists, CapsuleStartFailed, UsageError, HostIncapable: as the agent reports.
    """
    if spec.listen is not None:
        check_port(spec.listen)
    with sole_start(settings.capsules / spec.name):
        return _launch(settings, spec)


def _launch(settings: Settings, spec: CapsuleSpec) -> Capsule:
    paths = new_life(settings, spec.name)
    try:
        # Not by a file: it holds the service's environment, and with it its secrets.
        start_agent(settings, paths, _MODULE, spec.model_dump_json().encode())
    except BaseException:
        if not paths.state.exists():
            remove_rings(paths)
            shutil.rmtree(paths.directory, ignore_errors=True)
        raise
    facts = CapsuleFacts.model_validate_json(paths.state.read_bytes())
    current = paths.directory.parent / "current"
    fresh = paths.directory.parent / ".current"
    fresh.unlink(missing_ok=True)
    fresh.symlink_to(paths.directory.name)
    fresh.replace(current)
    return Capsule(paths, facts)


def agent_is_alive(capsule: Capsule) -> bool:
    """The agent's process runs."""
    return agent_lives(capsule.paths)


def tend_capsules(settings: Settings) -> list[str]:
    """Give every capsule and watched container that lost its agent a new one.

    It also writes down the end of one that ended meanwhile. Called by every command, so one whose agent does not start is no
    reason to fail: its log says why, and whoever asks that agent is told. Returns the names of those that run and have a new one.
    """
    tended = []
    for capsule in all_lives(settings):
        if capsule.paths.closed.exists() or agent_is_alive(capsule):
            continue
        paths, began = capsule.paths, capsule.facts.started_wall_ns
        with contextlib.suppress(ReliveError):
            is_new = replace_agent(paths, began, partial(start_agent, settings, paths, _MODULE))
            if is_new and capsule.is_alive:
                tended.append(capsule.facts.spec.name)
    return tended + tend_watches(settings)
