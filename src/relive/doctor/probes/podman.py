"""podman, for committing containers: asked about itself, with a storage of its own instead of the host's."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

from relive.doctor.finding import Obstacle, Result, limited, works
from relive.doctor.probe import Ground
from relive.kernel.mounts import bind, make_private
from relive.kernel.namespaces import Namespace, unshare

__all__ = ["podman"]

_LIMIT = 4.0  # [s]
_SHORT = Path("/mnt")  # where the directory of the probe appears, in its own mount namespace


def podman(ground: Ground) -> Result:
    """``podman info``, and whether its runtime can find or was built with CRIU."""
    if shutil.which("podman") is None:
        raise Obstacle(
            "not installed",
            cause="there is no `podman` in PATH",
            remedy="install Debian's podman, if containers are to be committed",
        )
    # It mounts its storage; and it refuses a run root whose path is longer than 50 characters.
    unshare(Namespace.MOUNT)
    make_private()
    bind(ground.directory, _SHORT)
    try:
        facts = _info()
        runtime, version = facts["host"]["ociRuntime"], facts["version"]["Version"]
        found = f"podman {version} with {runtime['name']}"
        obstacle = _without_criu(runtime["name"], runtime["path"], ground.settings.tools_path / "criu")
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


def _without_criu(name: str, path: str, criu: Path) -> tuple[str, str] | None:
    """(cause, remedy) where the runtime has no CRIU to checkpoint with."""
    if name == "crun":
        said = subprocess.run(
            [path, "--version"], capture_output=True, text=True, timeout=_LIMIT, check=False
        ).stdout
        if "+CRIU" in said:
            return None
        return (
            "this crun was built without CRIU, so it cannot checkpoint containers",
            "install runc, or a crun with +CRIU",
        )
    if shutil.which("criu") is None:
        return (
            f"{name} looks for a command `criu` to checkpoint with, and there is none in PATH",
            f"let it find the CRIU of Relive's tools: ln -s {criu} /usr/local/sbin/criu",
        )
    return None
