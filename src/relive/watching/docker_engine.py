"""Docker as the watch asks it, by its API."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence

from relive.agent.commits.dumper import CriuDumper, Dumper
from relive.config import Settings
from relive.containers.docker.api import get, open_stream
from relive.containers.docker.target import docker_target
from relive.errors import TargetUnknown
from relive.model.life_paths import LifePaths
from relive.watching.engine import Output, OutputTarget
from relive.watching.output import OutputFollower
from relive.watching.state import ContainerState, read_environment, read_state
from relive.watching.target import FoundContainer
from relive.watching.timestamps import moment

__all__ = ["Docker"]

_LINE_MOST = 1 << 16  # [bytes] of an event


class Docker:
    """See ``Engine``. Which engine follows from the environment: ``DOCKER_HOST``."""

    name = "docker"

    def inspect(self, container: str) -> ContainerState:
        """See ``Engine``."""
        found = get("containers", container, "json")
        if found is None:
            raise TargetUnknown(
                f"there is no container {container!r}",
                cause="Docker knows none of that name or id",
                remedy="`docker ps --all` lists them",
            )
        return read_state(found, self.name)

    def image_environment(self, image: str) -> Mapping[str, str]:
        """See ``Engine``."""
        found = get("images", image, "json")
        if found is None:
            raise TargetUnknown(
                f"there is no image {image!r}",
                cause="Docker has none of that name",
                remedy=f"fetch it first: docker pull {image}",
            )
        return read_environment(found)

    def check_health(self, container: str) -> None:
        """See ``Engine``. Its engine runs health checks itself, and offers nobody else to."""

    def last_exit(self, container: str, since: str) -> int | None:
        """See ``Engine``."""
        begin = moment(since)
        until = get("info")["SystemTime"]
        wanted = json.dumps({"container": [container], "event": ["die"]})
        connection, answer = open_stream(
            "events", since=_decimal(begin), until=_decimal(moment(until)), filters=wanted
        )
        try:
            line = answer.readline(_LINE_MOST)
        finally:
            connection.close()
        code = json.loads(line)["Actor"]["Attributes"].get("exitCode") if line.strip() else None
        return int(code) if code is not None else None

    def output(self, container: str, target: OutputTarget) -> Output:
        """See ``Engine``."""
        return OutputFollower(lambda since: _log_command(container, since), target)

    def dumper(self, settings: Settings, container: str, name: str, paths: LifePaths) -> Dumper:
        """See ``Engine``; it knows the name itself."""
        return CriuDumper(settings, FoundContainer(lambda: docker_target(container)))


def _log_command(container: str, since: str) -> Sequence[str]:
    """Writes the output as it comes, each line behind its time and a blank, from a time on."""
    return [
        sys.executable,
        "-P",
        "-m",
        "relive.watching.docker_logs",
        container,
        _decimal(moment(since)),
    ]


def _decimal(moment_ns: int) -> str:
    """A time as Docker's API takes it."""
    return f"{moment_ns // 1_000_000_000}.{moment_ns % 1_000_000_000:09d}"
