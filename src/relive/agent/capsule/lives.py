"""Which lives of capsules there are on this host. How one begins is in ``capsule``, which takes longer to import."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass

from relive.config import Settings
from relive.errors import TargetUnknown
from relive.kernel import procfs
from relive.model.capsule import CapsuleFacts, CapsuleSpec
from relive.model.life_paths import LifePaths

__all__ = ["Capsule", "all_lives", "find_capsule", "living_capsules"]


@dataclass(frozen=True, slots=True)
class Capsule:
    """One life of a capsule on this host."""

    paths: LifePaths
    facts: CapsuleFacts

    @property
    def is_alive(self) -> bool:
        """Its process 1 runs."""
        return procfs.is_same_process(self.facts.init, self.facts.init_started)

    def heads(self) -> list[int]:
        """Host pids of those whose parent is process 1: the service's first process, and the daemons that it left."""
        if not self.is_alive:
            return []
        if self.facts.init == self.facts.root:  # a container's, which is the service itself
            return [self.facts.root]
        found = procfs.children_of(self.facts.init)
        # One whose first thread has ended looks like a zombie, and lives on in the others.
        return [pid for pid in found if procfs.exists(pid) or len(procfs.threads_of(pid)) > 1]

    @property
    def lead(self) -> int:
        """Host pid of the process at the head of what is committed and watched.

        The service's first process; where that has ended, the daemon that it left, if it left one only.
        """
        return self.lead_of(self.heads())

    def lead_of(self, heads: Sequence[int]) -> int:
        """The ``lead``, where these are the ``heads``."""
        return heads[0] if len(heads) == 1 else self.facts.root

    @property
    def strays(self) -> list[int]:
        """Host pids of daemons beside the head: CRIU commits one tree, and they are not in it."""
        heads = self.heads()
        lead = self.lead_of(heads)
        return [pid for pid in heads if pid != lead]

    @property
    def wait_status(self) -> int | None:
        """Raw wait status of the service, None while it runs or when nobody could note it."""
        try:
            words = self.paths.status.read_text().split()
        except FileNotFoundError:
            return None
        return int(words[0]) if words else None

    def does_what(self, spec: CapsuleSpec) -> bool:
        """It is what would be started by that: the same command, as the same user, at the same address."""
        own = self.facts.spec
        return (own.name, own.command, own.directory, own.user, own.listen, own.upstream) == (
            *(spec.name, spec.command, spec.directory, spec.user, spec.listen, spec.upstream),
        )

    @property
    def ended_with_its_command(self) -> bool:
        """``relive run``, with which it was to end, was killed or ended."""
        with contextlib.suppress(FileNotFoundError):
            return self.paths.status.read_text().split()[1:] == ["owner"]
        return False


def all_lives(settings: Settings) -> list[Capsule]:
    """Every life whose directory is still there, oldest first."""
    found = []
    for state in settings.capsules.glob("*/*/state.json"):
        if state.parent.is_symlink():
            continue  # "current"
        with contextlib.suppress(OSError, ValueError):
            found.append(
                Capsule(LifePaths(state.parent), CapsuleFacts.model_validate_json(state.read_bytes()))
            )
    return sorted(found, key=lambda capsule: capsule.facts.started_wall_ns)


def living_capsules(settings: Settings) -> list[Capsule]:
    """Capsules that run now."""
    return [capsule for capsule in all_lives(settings) if capsule.is_alive]


def find_capsule(settings: Settings, name: str) -> Capsule:
    """The running capsule of a name; raises TargetUnknown."""
    for capsule in living_capsules(settings):
        if capsule.facts.spec.name == name:
            return capsule
    raise TargetUnknown(
        f"no running capsule is called {name!r}",
        remedy="`relive ps` lists capsules; any process can be named as pid:NUMBER",
    )
