"""What the watch asks an engine of containers, whichever it is, or whoever knows how a service is (``watching.processes``)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from relive.agent.commits.dumper import Dumper
from relive.config import Settings
from relive.model.life_paths import LifePaths
from relive.watching.state import ContainerState

__all__ = ["Engine", "Output", "OutputTarget"]


@dataclass(frozen=True, slots=True)
class OutputTarget:
    """Where a watch wants the output of what it watches.

    Attributes:
        streams: files of stdout and stderr.
        position: file that keeps how far it has come, so that the next agent goes on there.
        since: when the watch began, as RFC 3339.
        on_line: called with every line, without its end, and the size of stderr's file when it began.
    """

    streams: Sequence[Path]
    position: Path
    since: str
    on_line: Callable[[bytes, int], None]


class Output(Protocol):
    """Output that is followed, in the agent's event loop.

    Attributes:
        idle: set while nothing is followed: all that was written is in the files.
    """

    idle: asyncio.Event

    async def follow(self, has_started: asyncio.Event) -> None:
        """Follow until it is cancelled; ``has_started`` is set whenever there is a new start to follow."""


class Engine(Protocol):
    """Its methods may be called in any thread, several at a time; they block."""

    @property
    def name(self) -> str:
        """As targets begin: "podman", "docker", "pid", "unit"."""

    def inspect(self, container: str) -> ContainerState:
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

    def output(self, container: str, target: OutputTarget) -> Output:
        """What follows its output."""

    def dumper(self, settings: Settings, container: str, name: str, paths: LifePaths) -> Dumper:
        """What takes its commits; ``name``: what it is called in them, ``paths``: where the files of its watch lie."""
