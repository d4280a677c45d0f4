"""Docker, for committing containers: asked about itself by its API, which changes nothing."""

from __future__ import annotations

from relive.containers.docker.api import get
from relive.doctor.finding import Obstacle, ProbeResult, limited, works
from relive.doctor.probe import ProbeContext
from relive.errors import HostIncapable, ToolMissing

__all__ = ["docker"]


def docker(_ground: ProbeContext) -> ProbeResult:
    """Whether an engine answers on this host, and whether it keeps what a container changed apart."""
    try:
        facts = get("info")
        version, driver = facts["ServerVersion"], facts["Driver"]
        # Docker's own checkpoints need the experimental engine; Relive's commits do not.
        own = "with" if facts.get("ExperimentalBuild") else "without"
        found = f"Docker {version}, {driver}, {own} checkpoints of its own"
    except ToolMissing as error:
        raise Obstacle(
            "no engine answers", cause=error.cause or "it says nothing", remedy=error.remedy
        ) from None
    except HostIncapable as error:
        raise Obstacle(error.message, cause=error.cause or "it says nothing", remedy=error.remedy) from None
    except (KeyError, TypeError) as error:
        raise Obstacle(
            "not understood", cause=f"its /info has no {error}", remedy="use Docker 20.10 or later"
        ) from None
    if driver != "overlay2":
        return limited(
            found,
            cause=f"the storage driver {driver} does not keep what a container changed apart from its image",
            remedy='use "storage-driver": "overlay2" in daemon.json',
        )
    return works(found)
