"""Targets: the capsules that run, and the containers and services that are watched."""

from __future__ import annotations

from relive.agent.asking import ask_agent
from relive.agent.containers.life import Watch, living_watches
from relive.agent.containers.moments import moment
from relive.agent.lives import living_capsules
from relive.agent.tending import tend_capsules
from relive.config import Settings
from relive.errors import AgentUnreachable
from relive.operations.operation import Result
from relive.operations.progress import Progress

__all__ = ["Target", "list_targets", "tend"]

_STATUS_LIMIT = 2.0  # [s]
_KINDS = {"pid": "process", "unit": "unit"}


class Target(Result):
    """A capsule that runs, or a container or service that is watched.

    Attributes:
        kind: "capsule", "container", "process" or "unit".
        name: of a watch, its target; called: what its commits and incidents are filed under.
        pid: of its service, on the host, 0 where it does not run; listen: HOST:PORT of its proxy, if it has one.
    """

    kind: str = "capsule"
    name: str
    called: str = ""
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
    """The capsules that run, then what is watched; of each the oldest first."""
    tend(settings, progress)
    capsules = [
        Target(
            name=one.facts.spec.name,
            called=one.facts.spec.name,
            life=one.paths.directory.name,
            pid=one.lead,
            listen=_address(one.facts.spec.listen),
            command=list(one.facts.spec.command),
            started_wall_ns=one.facts.started_wall_ns,
        )
        for one in living_capsules(settings)
    ]
    return capsules + [_watched(one) for one in living_watches(settings)]


def _watched(watch: Watch) -> Target:
    facts = watch.facts
    return Target(
        kind=_KINDS.get(facts.engine, "container"),
        name=watch.target,
        called=facts.name,
        life=facts.id,
        pid=_pid(watch),
        listen=_address(facts.spec.upstream if facts.spec.stands_in else facts.spec.listen),
        command=facts.command,
        started_wall_ns=moment(facts.began),
    )


def _pid(watch: Watch) -> int:
    try:
        return int(ask_agent(watch.paths.agent_socket, {"op": "status"}, limit=_STATUS_LIMIT)["pid"])
    except AgentUnreachable:
        return 0


def _address(pair: tuple[str, int] | None) -> str | None:
    return "{}:{}".format(*pair) if pair is not None else None
