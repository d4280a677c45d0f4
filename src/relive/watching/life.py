"""Watched containers and services on this host: where their files lie, and which there are."""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass

from relive.agent.capsule.lives import Capsule
from relive.config import Settings
from relive.errors import TargetUnknown
from relive.kernel import procfs
from relive.model.capsule import CapsuleFacts, CapsuleSpec
from relive.model.life_paths import LifePaths
from relive.model.watched import WatchFacts
from relive.watching.state import ContainerState

__all__ = [
    "Watch",
    "WatchedService",
    "all_watches",
    "find_watch",
    "life_paths",
    "living_watches",
    "service_of",
]

_ID_LEAST = 12  # [digits] as engines show ids


@dataclass(frozen=True, slots=True)
class Watch:
    """The watch of one container or service."""

    paths: LifePaths
    facts: WatchFacts

    @property
    def is_open(self) -> bool:
        """It has not been ended, whether or not its agent runs and its container does."""
        return not self.paths.closed.exists()

    @property
    def target(self) -> str:
        """What is watched, as people name it: "podman:web", "pid:1234"."""
        return self.facts.target or f"{self.facts.engine}:{self.facts.name}"

    def is_called(self, name: str) -> bool:
        """It is the watch of what has that name, id (12 digits will do), or target."""
        facts = self.facts
        if name == self.target:
            return True
        bare = name.removeprefix(f"{facts.engine}:")
        return bare == facts.name or (len(bare) >= _ID_LEAST and facts.id.startswith(bare))


def life_paths(settings: Settings, name: str, identifier: str) -> LifePaths:
    """Where the files of a container's watch lie: as those of a capsule whose life is called like the container's id."""
    return LifePaths(settings.capsules / name / identifier)


def all_watches(settings: Settings) -> list[Watch]:
    """Every watch whose directory is still there, oldest first."""
    found = []
    for path in settings.capsules.glob("*/*/watch.json"):
        with contextlib.suppress(OSError, ValueError):
            found.append(Watch(LifePaths(path.parent), WatchFacts.model_validate_json(path.read_bytes())))
    return sorted(found, key=lambda watch: watch.facts.began)


def living_watches(settings: Settings) -> list[Watch]:
    """Those that have not been ended."""
    return [watch for watch in all_watches(settings) if watch.is_open]


def find_watch(settings: Settings, name: str) -> Watch:
    """The watch of a container or service, by its name, id or target; raises TargetUnknown."""
    for watch in living_watches(settings):
        if watch.is_called(name):
            return watch
    raise TargetUnknown(
        f"nothing called {name!r} is watched",
        remedy=f"`relive watch {name}` begins it; `relive ps` lists all",
    )


class WatchedService(Capsule):
    """A watched container where a capsule is expected that lives as long as it is looked after: between two starts, too."""

    __slots__ = ()

    @property
    def is_alive(self) -> bool:
        """It is watched."""
        return not self.paths.closed.exists()


def service_of(watch: Watch, state: ContainerState | None = None) -> Capsule:
    """One start of a container in the words of a capsule; without a state, the container whatever its start."""
    spec = watch.facts.spec
    capsule = CapsuleSpec(
        name=watch.facts.name,
        command=watch.facts.command,
        directory=watch.facts.directory,
        environment={},  # it may hold secrets
        policy=spec.policy,
        listen=spec.listen,
        stands_in=spec.stands_in,
        upstream=spec.upstream,
        capture=spec.capture,
        hindrance=spec.hindrance,
        hang_after=spec.hang_after,
        inside=watch.facts.rings is not None,
    )
    pid = state.pid if state is not None else 0
    stat = procfs.read_stat(pid) if pid else None
    facts = CapsuleFacts(
        spec=capsule,
        life=watch.facts.id,
        init=pid,
        init_started=stat.start_ticks if stat is not None else 0,
        root=pid,
        root_inside=1,
        started_wall_ns=time.time_ns(),
        points=[],
    )
    return Capsule(watch.paths, facts) if state is not None else WatchedService(watch.paths, facts)
