"""Targets: the capsules that run."""

from __future__ import annotations

from relive.agent.capsule import living_capsules
from relive.agent.launch import tend_capsules
from relive.config import Settings
from relive.operations.operation import Result
from relive.operations.progress import Progress

__all__ = ["Target", "list_targets", "tend"]


class Target(Result):
    """A capsule that runs.

    Attributes:
        pid: of its service, on the host; listen: HOST:PORT of its proxy, if it has one.
    """

    name: str
    life: str
    pid: int
    listen: str | None
    command: list[str]
    started_wall_ns: int


def tend(settings: Settings, progress: Progress) -> None:
    """Give capsules whose agent has died a new one; every operation that looks at capsules or what they keep begins so."""
    for name in tend_capsules(settings):
        progress.status(f"The agent of {name} had died; it has a new one.")


def list_targets(settings: Settings, progress: Progress) -> list[Target]:
    """The capsules that run, oldest first."""
    tend(settings, progress)
    return [
        Target(
            name=one.facts.spec.name,
            life=one.paths.directory.name,
            pid=one.facts.root,
            listen="{}:{}".format(*one.facts.spec.listen) if one.facts.spec.listen else None,
            command=list(one.facts.spec.command),
            started_wall_ns=one.facts.started_wall_ns,
        )
        for one in living_capsules(settings)
    ]
