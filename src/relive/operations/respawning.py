"""Giving capsules and watched containers whose agent died another one. Every command does it, so it imports little."""

from __future__ import annotations

import contextlib
from functools import partial
from pathlib import Path

from relive.agent.capsule.agent_process import CAPSULES, agent_lives, replace_agent, start_agent
from relive.agent.capsule.lives import Capsule, all_lives
from relive.config import Settings
from relive.errors import ReliveError
from relive.watching.respawning import tend_watches

__all__ = ["tend_capsules", "tend_life"]


def tend_capsules(settings: Settings, *, only: str | None = None) -> list[str]:
    """Give every capsule and watched container that lost its agent a new one.

    It also writes down the end of one that ended meanwhile. Called by every command, so one whose agent does not start is no
    reason to fail: its log says why, and whoever asks that agent is told. Returns the names of those that run and have a new one.

    Args:
        only: the capsules of this name alone: a new agent lives in the control group of whoever starts it, and that of a
            systemd unit ends with the unit.
    """
    tended = []
    for capsule in all_lives(settings):
        if capsule.paths.closed.exists() or agent_lives(capsule.paths):
            continue
        if only is not None and capsule.facts.spec.name != only:
            continue
        with contextlib.suppress(ReliveError):
            if _tend(settings, capsule) and capsule.is_alive:
                tended.append(capsule.facts.spec.name)
    return tended + (tend_watches(settings) if only is None else [])


def _tend(settings: Settings, capsule: Capsule) -> bool:
    paths, began = capsule.paths, capsule.facts.started_wall_ns
    return replace_agent(paths, began, partial(start_agent, settings, paths, CAPSULES))


def tend_life(settings: Settings, directory: Path) -> None:
    """Give one life, or one watch, another agent if it has lost its own.

    Raises:
        ReliveError: it does not start.
    """
    for capsule in all_lives(settings):
        is_left = not (capsule.paths.closed.exists() or agent_lives(capsule.paths))
        if capsule.paths.directory == directory and is_left:
            _tend(settings, capsule)
    tend_watches(settings, only=directory)
