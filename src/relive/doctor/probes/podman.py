"""podman, for committing containers: asked about itself, with a storage of its own instead of the host's."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

from relive.doctor.finding import Obstacle, ProbeResult, limited, works
from relive.doctor.probe import ProbeContext
from relive.kernel import procfs
from relive.kernel.mounts import bind, make_private
from relive.kernel.namespaces import Namespace, unshare

__all__ = ["podman"]

_LIMIT = 4.0  # [s]
_SYS_RESOURCE = 24  # CAP_SYS_RESOURCE
_CONFIGURED = "CONTAINERS_CONF"  # the variable of a configuration that somebody chose
_SHORT = Path("/mnt")  # where the directory of the probe appears, in its own mount namespace


def podman(context: ProbeContext) -> ProbeResult:
    """``podman info``; whether what a container changes can be told apart, and whether a runtime is there that restores."""
    if shutil.which("podman") is None:
        raise Obstacle(
            "not installed",
            cause="there is no `podman` in PATH",
            remedy="install Debian's podman, if containers are to be committed",
        )
    # It mounts its storage; and it refuses a run root whose path is longer than 50 characters.
    unshare(Namespace.MOUNT)
    make_private()
    bind(context.directory, _SHORT)
    try:
        facts = _info()
        runtime, version = facts["host"]["ociRuntime"], facts["version"]["Version"]
        found = f"podman {version} with {runtime['name']}"
        obstacle = _without_criu(runtime["name"], runtime["path"])
        obstacle = (
            obstacle
            or _without_limits(context.settings.tools_path)
            or _without_layers(facts.get("store") or {})
        )
    except (KeyError, TypeError) as error:
        raise Obstacle(
            "not understood", cause=f"`podman info` has no {error}", remedy="use podman 4 or later"
        ) from None
    return works(found) if obstacle is None else limited(found, cause=obstacle[0], remedy=obstacle[1])


def _info() -> dict[str, Any]:
    own = [f"--{option}={_SHORT / option}" for option in ("root", "runroot", "tmpdir")]
    done = subprocess.run(
        ["podman", *own, "info", "--format=json"],
        capture_output=True,
        text=True,
        timeout=_LIMIT,
        check=False,
        stdin=subprocess.DEVNULL,
        cwd="/",
    )
    if done.returncode != 0:
        words = done.stderr.strip().splitlines() or [f"it ended with status {done.returncode}"]
        raise Obstacle(
            "`podman info` fails", cause=words[-1], remedy="mend podman; `podman info` shows what is wrong"
        )
    facts: dict[str, Any] = json.loads(done.stdout)
    return facts


def _without_criu(name: str, path: str) -> tuple[str, str] | None:
    """(cause, remedy) where no runtime can restore with CRIU, which Relive gives it; committing needs none."""
    if name == "runc" or shutil.which("runc") is not None:
        return None
    said = subprocess.run(
        [path, "--version"], capture_output=True, text=True, timeout=_LIMIT, check=False
    ).stdout
    if "+CRIU" in said:
        return None
    return (
        f"this {name} was built without CRIU: containers can be committed, but not restored with --as podman",
        "install runc, or a crun with +CRIU",
    )


def _without_layers(store: dict[str, Any]) -> tuple[str, str] | None:
    """The same where the storage driver keeps whole trees."""
    driver = store.get("graphDriverName", "overlay")
    if driver == "overlay":
        return None
    return (
        f"its storage driver {driver} does not keep what a container changed apart from its image",
        'use `driver = "overlay"` in storage.conf for containers that are to be committed',
    )


def _without_limits(tools: Path) -> tuple[str, str] | None:
    """The same where podman's default limits cannot be set: it asks for more than the hard ones that root has here."""
    effective = int(procfs.status_field(os.getpid(), "CapEff") or "0", 16)
    if effective >> _SYS_RESOURCE & 1 or _CONFIGURED in os.environ:
        return None
    return (
        "without CAP_SYS_RESOURCE runc may not raise limits, and podman's default ones start no container",
        f"`export CONTAINERS_CONF={tools}/containers.conf`, which set-up made, or set default_ulimits as it does",
    )
