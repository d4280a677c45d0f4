"""Giving watches of containers that lost their agent a new one. Every command does it, so it imports little."""

from __future__ import annotations

import contextlib
from functools import partial
from pathlib import Path

from relive.agent.capsule.agent_process import CONTAINERS, agent_lives, replace_agent, start_agent
from relive.config import Settings
from relive.errors import ReliveError
from relive.watching.life import Watch, living_watches
from relive.watching.timestamps import moment

__all__ = ["tend_watches"]


def tend_watches(settings: Settings, only: Path | None = None) -> list[str]:
    """Give every watch that lost its agent a new one, or that in the directory ``only``. Returns the names of their containers."""
    tended = []
    for watch in living_watches(settings):
        if agent_lives(watch.paths) or (only is not None and watch.paths.directory != only):
            continue
        with contextlib.suppress(ReliveError):
            if replace_agent(watch.paths, _began_ns(watch), partial(_start_again, settings, watch)):
                tended.append(watch.target)
    return tended


def _start_again(settings: Settings, watch: Watch) -> None:
    start_agent(settings, watch.paths, CONTAINERS, variables=watch.facts.environment)


def _began_ns(watch: Watch) -> int:
    return moment(watch.facts.began)
