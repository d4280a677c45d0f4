"""Giving a service's Python processes the recorder: rings in memory, and two environment variables."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import stat
from collections.abc import Mapping
from pathlib import Path

from relive.agent.capsule.leftovers import IN_MEMORY, LIFE
from relive.config import Settings
from relive.errors import HostIncapable
from relive.model.life_paths import LifePaths
from relive.sandbox.rootfs import INPROCESS_DIRECTORY, RINGS_DIRECTORY

__all__ = ["make_rings", "remove_rings", "with_recorder"]

_TRIES = 3


def make_rings(paths: LifePaths) -> None:
    """Make the directory of a new life's rings, in memory: their pages must never wait for a disk.

    Every user of the capsule may make files in it; on the host nobody but the caller (root) reaches it.

    Raises:
        HostIncapable: there is no place in memory, or somebody else has taken its name.
    """
    rings = _place(paths)
    try:
        _make_ours(rings)
        (rings / LIFE).symlink_to(paths.directory)
        rings.chmod(0o1777)
    except OSError as error:
        raise HostIncapable(
            f"the recorder has no place in memory: {rings} cannot be made",
            cause=error.strerror or str(error),
            remedy="mount a tmpfs at /dev/shm",
        ) from error
    paths.rings.symlink_to(rings)


def _place(paths: LifePaths) -> Path:
    return IN_MEMORY / paths.directory.name


def _make_ours(rings: Path) -> None:
    for _ in range(_TRIES):
        IN_MEMORY.mkdir(mode=0o700, exist_ok=True)
        _check_ours(IN_MEMORY)
        # The last service there was has just ended, and took it along.
        with contextlib.suppress(FileNotFoundError):
            return rings.mkdir()
    rings.mkdir()


def _check_ours(directory: Path) -> None:
    """In /dev/shm everybody can make names: what is not ours could be exchanged for something else at any moment."""
    facts = directory.lstat()
    if not stat.S_ISDIR(facts.st_mode) or facts.st_uid != os.geteuid() or facts.st_mode & 0o077:
        raise HostIncapable(
            f"{directory} is not Relive's own",
            cause=f"it belongs to uid {facts.st_uid}, mode {stat.filemode(facts.st_mode)}",
            remedy=f"look who made it, then remove it: rm -r {directory}",
        )


def remove_rings(paths: LifePaths) -> None:
    """Remove them, once all that was in them is in the recording, or there is no recording any more: RELIVE_HOME may be gone."""
    shutil.rmtree(_place(paths), ignore_errors=True)
    paths.rings.unlink(missing_ok=True)


def with_recorder(environment: Mapping[str, str], settings: Settings) -> dict[str, str]:
    """The environment with the recorder in it: first in ``PYTHONPATH``, so that its ``sitecustomize`` is found, which hands on."""
    others = environment.get("PYTHONPATH")
    options = {
        "rings": str(RINGS_DIRECTORY),
        "ring_bytes": settings.ring,
        "inline_bytes": settings.inline_limit,
        "body_bytes": settings.body_limit,
        "off": settings.record_not,
        "secret_names": settings.secret_names,
        "secret_patterns": settings.secret_patterns,
        "wait_ms": round(settings.failure_wait * 1000),
        "failure_pause": settings.incident_pause,
    }
    return {
        **environment,
        "PYTHONPATH": f"{INPROCESS_DIRECTORY}:{others}" if others else str(INPROCESS_DIRECTORY),
        "RELIVE_RECORDER": json.dumps(options),
    }
