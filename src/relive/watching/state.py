"""What an engine tells of a container: podman's ``inspect`` and Docker's have the same shape in all that is read here."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from relive.errors import HostIncapable

__all__ = ["ContainerState", "HealthCheck", "read_environment", "read_state"]

_RUNNING = frozenset({"running", "paused"})
_FRACTION = re.compile(r"\.(\d{6})\d+")  # Python reads microseconds, engines write nanoseconds
_OUTPUT_MOST = 200  # [characters] of what a health check printed


@dataclass(frozen=True, slots=True)
class HealthCheck:
    """Of a container with a health check.

    Attributes:
        status: "starting", "healthy", "unhealthy".
        streak: checks that failed in a row.
        said: first line of what the last failing check printed; may be empty.
        interval: seconds between two checks.
        checked: when the last check ended, in seconds since the epoch; None before the first.
    """

    status: str
    streak: int
    said: str
    interval: float
    checked: float | None


@dataclass(frozen=True, slots=True)
class ContainerState:
    """A container as its engine sees it at one moment.

    Attributes:
        id: whole, 64 hexadecimal digits.
        pid: of its process 1, as the host sees it; 0 while it does not run.
        started: when its process 1 was started, as the engine writes it: another one is another start.
        exit_code: of the last start that has ended, as a shell shows it; None where nobody knows it.
        stopped_by_user: None where the engine does not tell.
        health: None without a health check.
        restarts: how often its engine has restarted it by its policy.
        mounts: places on the host by places in the container.
        ports: (address, port) on the host of each TCP port that is published.
        logs: name of its log driver.
        has_recorder: Relive's recorder was put into its environment when it was created.
        is_final: it does not run, and never will again.
        has_group: its control group is its own.
        target: as people name it, where that is not ENGINE:NAME.
    """

    id: str
    name: str
    image: str
    command: list[str]
    directory: str
    status: str
    pid: int
    started: str
    exit_code: int | None
    oom_killed: bool
    stopped_by_user: bool | None
    health: HealthCheck | None
    restarts: int
    mounts: Mapping[str, str]
    ports: list[tuple[str, int]]
    logs: str
    has_recorder: bool
    is_final: bool = False
    has_group: bool = True
    target: str | None = None

    @property
    def is_running(self) -> bool:
        """Its process 1 is there."""
        return self.status in _RUNNING and self.pid > 0


def read_state(facts: Mapping[str, Any], engine: str) -> ContainerState:
    """Read one element of what ``inspect`` answers.

    Raises:
        HostIncapable: it is not of the shape that podman 4 and Docker's API 1.24 have.
    """
    try:
        return _read(facts)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise HostIncapable(
            f"what {engine} tells of a container is not understood",
            cause=f"{type(error).__name__}: {error}",
            remedy="use podman 4 or later, or Docker 20 or later",
        ) from error


def read_environment(facts: Mapping[str, Any]) -> dict[str, str]:
    """The variables that an image or container was given, out of one element of what ``inspect`` answers."""
    words = (facts.get("Config") or {}).get("Env") or []
    return {name: value for name, _, value in (str(word).partition("=") for word in words)}


def _read(facts: Mapping[str, Any]) -> ContainerState:
    state, config = facts["State"], facts["Config"]
    return ContainerState(
        id=str(facts["Id"]),
        name=str(facts["Name"]).removeprefix("/"),
        image=str(facts.get("ImageName") or config.get("Image") or facts["Image"]),
        command=[str(facts["Path"]), *map(str, facts.get("Args") or [])],
        directory=str(config.get("WorkingDir") or "/"),
        status=str(state["Status"]),
        pid=int(state["Pid"]),
        started=str(state["StartedAt"]),
        exit_code=int(state["ExitCode"]),
        oom_killed=bool(state.get("OOMKilled")),
        stopped_by_user=state.get("StoppedByUser"),
        health=_health(state.get("Health"), config.get("Healthcheck")),
        restarts=int(facts.get("RestartCount") or 0),
        mounts={str(one["Destination"]): str(one["Source"]) for one in facts.get("Mounts") or []},
        ports=_ports((facts.get("NetworkSettings") or {}).get("Ports")),
        logs=str(((facts.get("HostConfig") or {}).get("LogConfig") or {}).get("Type") or ""),
        has_recorder=any(str(one).startswith("RELIVE_RECORDER=") for one in config.get("Env") or []),
    )


def _health(health: Mapping[str, Any] | None, check: Mapping[str, Any] | None) -> HealthCheck | None:
    words = (check or {}).get("Test") or []
    if not health or not health.get("Status") or words[:1] in ([], ["NONE"]):
        return None
    runs = health.get("Log") or []
    failed: Mapping[str, Any] = next((one for one in reversed(runs) if one.get("ExitCode")), {})
    lines = str(failed.get("Output") or "").strip().splitlines()
    return HealthCheck(
        status=str(health["Status"]),
        streak=int(health.get("FailingStreak") or 0),
        said=lines[0][:_OUTPUT_MOST] if lines else "",
        interval=int((check or {}).get("Interval") or 30_000_000_000) / 1e9,
        checked=_seconds(str(runs[-1]["End"])) if runs else None,
    )


def _seconds(text: str) -> float:
    return datetime.fromisoformat(_FRACTION.sub(r".\1", text).replace("Z", "+00:00")).timestamp()


def _ports(published: Mapping[str, Any] | None) -> list[tuple[str, int]]:
    found: list[tuple[str, int]] = []
    for inner, bindings in (published or {}).items():
        for one in bindings or [] if inner.endswith("/tcp") else []:
            host = str(one.get("HostIp") or "")
            pair = ("127.0.0.1" if host in ("", "0.0.0.0", "::") else host, int(one["HostPort"]))
            if pair not in found:
                found.append(pair)
    return found
