"""What the watch asks an engine of containers, whichever it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from relive.agent.containers.state import ContainerState
from relive.agent.taker import Taker
from relive.config import Settings

__all__ = ["Engine"]


class Engine(Protocol):
    """Its methods may be called in any thread, several at a time; they block."""

    @property
    def name(self) -> str:
        """As targets begin: "podman" or "docker"."""

    def look(self, container: str) -> ContainerState:
        """How a container is now.

        Raises:
            TargetUnknown: there is none of that name or id.
            ToolMissing, HostIncapable: the engine does not answer.
        """

    def image_environment(self, image: str) -> Mapping[str, str]:
        """The variables that an image sets; raises TargetUnknown where it is not there."""

    def check_health(self, container: str) -> None:
        """Run its health check once; what came of it stands in its state."""

    def last_exit(self, container: str, since: str) -> int | None:
        """Exit code of the first end since a time (as ``ContainerState.started`` has it); None where nobody knows it any more."""

    def log_command(self, container: str, since: str) -> Sequence[str]:
        """A command that writes its output as it comes, each line behind its time and a blank, from a time on."""

    def taker(self, settings: Settings, container: str) -> Taker:
        """What takes its commits."""
