"""podman as the watch asks it, by its command."""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any

from relive.agent.commits.dumper import CriuDumper, Dumper
from relive.config import Settings
from relive.containers.podman.command import CommandResult, ask
from relive.containers.podman.container import find_container
from relive.containers.podman.target import container_target
from relive.errors import HostIncapable, TargetUnknown
from relive.model.life_paths import LifePaths
from relive.watching.engine import Output, OutputTarget
from relive.watching.output import OutputFollower
from relive.watching.state import ContainerState, read_environment, read_state
from relive.watching.target import FoundContainer

__all__ = ["Podman"]

_LIMIT = 30.0  # [s] for podman to answer
_CHECK_LIMIT = 120.0  # [s] for a health check, which has a limit of its own
_UNKNOWN = ("no such", "no container with", "not known", "unable to find")


class Podman:
    """See ``Engine``. Which containers there are follows from the environment: ``CONTAINERS_CONF``, ``CONTAINERS_STORAGE_CONF``."""

    name = "podman"

    def inspect(self, container: str) -> ContainerState:
        """See ``Engine``."""
        found = _inspect("container", container)
        if found is None:
            raise TargetUnknown(
                f"there is no container {container!r}",
                cause="podman knows none of that name or id",
                remedy="`podman ps --all` lists root's containers; those of another user are in that user's podman",
            )
        return read_state(found, self.name)

    def image_environment(self, image: str) -> Mapping[str, str]:
        """See ``Engine``."""
        found = _inspect("image", image)
        if found is None:
            raise TargetUnknown(
                f"there is no image {image!r}",
                cause="podman has none of that name in its storage",
                remedy=f"fetch it first: podman pull {image}",
            )
        return read_environment(found)

    def check_health(self, container: str) -> None:
        """See ``Engine``."""
        _ask("healthcheck", "run", container, limit=_CHECK_LIMIT)

    def last_exit(self, container: str, since: str) -> int | None:
        """See ``Engine``: from podman's log of events."""
        wanted = (f"--filter=container={container}", "--filter=event=died", f"--since={since}")
        for line in _ask("events", "--stream=false", "--format=json", *wanted).output.splitlines():
            with contextlib.suppress(ValueError, TypeError, AttributeError):
                return int(json.loads(line).get("ContainerExitCode") or 0)  # podman leaves a 0 out
        return None

    def output(self, container: str, target: OutputTarget) -> Output:
        """See ``Engine``."""
        return OutputFollower(lambda since: _log_command(container, since), target)

    def dumper(self, settings: Settings, container: str, name: str, paths: LifePaths) -> Dumper:
        """See ``Engine``; it knows the name itself."""
        return CriuDumper(
            settings, FoundContainer(lambda: container_target(find_container(container), settings))
        )


def _log_command(container: str, since: str) -> Sequence[str]:
    """Writes the output as it comes, each line behind its time and a blank, from a time on."""
    return ["podman", "logs", "--follow", "--timestamps", f"--since={since}", container]


def _inspect(kind: str, name: str) -> dict[str, Any] | None:
    answer = _ask(kind, "inspect", "--", name)
    if answer.status != 0:
        if any(words in answer.errors.lower() for words in _UNKNOWN):
            return None
        raise HostIncapable(
            "podman does not answer",
            cause=answer.said or f"it ended with status {answer.status}",
            remedy=f"`podman {kind} inspect {name}` shows what is wrong",
        )
    try:
        return dict(answer.json()[0])
    except (ValueError, IndexError, TypeError) as error:
        raise HostIncapable("what podman answers is not understood", cause=str(error)) from error


def _ask(*words: str, limit: float = _LIMIT) -> CommandResult:
    try:
        return ask(*words, limit=limit)
    except subprocess.TimeoutExpired as error:
        raise HostIncapable(
            f"podman did not answer within {limit:g} s",
            cause=f"podman {' '.join(words[:2])}",
            remedy="look what it waits for: `podman ps`",
        ) from error
