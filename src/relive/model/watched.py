"""The watch of a container or service as a value: what was asked for, and of what it is."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict

from relive.errors import UsageError
from relive.model.capsule import CaptureWay, has_front
from relive.model.commit_policy import Policy
from relive.model.text import NativeText

__all__ = ["WatchFacts", "WatchSpec", "check_pattern"]


def check_pattern(text: str) -> str:
    """A regular expression for lines of output, if it is one; raises UsageError."""
    try:
        re.compile(text.encode())
    except re.error as error:
        raise UsageError(
            f"--log-pattern cannot be {text!r}",
            cause=str(error),
            remedy="write a regular expression of Python",
        ) from error
    return text


class WatchSpec(BaseModel):
    """What ``relive watch`` was asked for.

    Attributes:
        listen: where the recording proxy listens, and upstream: where the container is reached from the host; both or none.
        capture: how requests are recorded, if they are; beside their way both are where the service itself listens.
        hindrance: why there is a proxy that nobody asked for; None: there is none.
        hang_after: seconds without an answer after which a request counts as hanging; None: no limit.
        patterns: regular expressions; a line of output in which one is found is a failure.
        signals: fatal signals are waited for with ptrace.
        health: health checks that nobody runs in time are run by the watch.
        stands_in: the recording proxy takes the service's own port from within, at ``listen``; nobody is pointed elsewhere.
        health_url: of a service, asked again and again; None: it has no health check.
        log_files: of a service, read for its output beside where its standard streams lead.
        files: of a service, files and directories that each commit holds.
    """

    model_config = ConfigDict(frozen=True)

    policy: Policy
    listen: tuple[str, int] | None = None
    upstream: tuple[str, int] | None = None
    capture: CaptureWay = CaptureWay.PROXY
    hindrance: str | None = None
    hang_after: float | None = None
    patterns: list[Annotated[str, AfterValidator(check_pattern)]] = []
    signals: bool = True
    health: bool = True
    stands_in: bool = False
    health_url: str | None = None
    log_files: list[NativeText] = []
    files: list[NativeText] = []

    @property
    def has_front(self) -> bool:
        """Clients connect to a port that is not the service's own."""
        return has_front(self.listen, self.capture, stands_in=self.stands_in)


class WatchFacts(BaseModel):
    """One watched container or service, as written into ``watch.json`` in the directory of its life.

    Attributes:
        engine: "podman", "docker", "pid" or "unit".
        id, name: the container's; of a service what tells its process from all others, or the unit's name, and what it is called.
        target: as people name it, where that is not ENGINE:NAME.
        command: of its first process; directory: where that begins.
        rings: directory on the host of the rings of its Python processes; None: it was created without the recorder.
        began: when the watch began, as RFC 3339.
        environment: variables by which its engine finds it, as they were for who began the watch.
    """

    model_config = ConfigDict(frozen=True)

    spec: WatchSpec
    engine: str
    id: str
    name: str
    command: list[str]
    directory: str
    rings: str | None
    began: str
    target: str | None = None
    environment: dict[str, str]
