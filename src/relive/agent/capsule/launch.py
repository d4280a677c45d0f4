"""Starting the agent of a new life. What starts another one when it has died is in ``agent_process``."""

from __future__ import annotations

import os
import shutil
import time
import uuid
from collections.abc import Callable

from relive.agent.capsule.agent_process import CAPSULES, check_port, sole_start, start_agent
from relive.agent.capsule.inherited import InheritedDescriptors
from relive.agent.capsule.injection import make_rings, remove_rings
from relive.agent.capsule.lives import Capsule, living_capsules
from relive.config import Settings
from relive.errors import CapsuleExists, PermissionMissing
from relive.kernel.disk_errors import disk_errors
from relive.model.capsule import CapsuleFacts, CapsuleSpec
from relive.model.life_paths import LifePaths

__all__ = ["launch", "new_life"]


def launch(
    settings: Settings,
    spec: CapsuleSpec,
    handed: InheritedDescriptors | None = None,
    prepare: Callable[[LifePaths], None] = lambda _paths: None,
) -> Capsule:
    """Start a service in a capsule, with an agent of its own that outlives the caller.

    Args:
        handed: what the service gets from the caller.
        prepare: called before it is started, once its directories are there.

    Raises:
        PermissionMissing: this is not root.
        CapsuleExists, CapsuleStartFailed, UsageError, HostIncapable: as the agent reports.
    """
    # Before anything else: what is root's would be told as damage, with advice to remove it.
    if os.geteuid() != 0:
        raise PermissionMissing(
            "starting a service in a capsule needs root",
            cause=f"this is uid {os.geteuid()}",
            remedy="run it with sudo",
        )
    _check_unused(settings, spec.name)  # its own port is taken then, which would hide the reason
    if spec.listen is not None and (spec.has_front or handed is None or not handed.sockets):
        check_port(spec.listen)
    with sole_start(settings.capsules / spec.name):
        return _launch(settings, spec, handed or InheritedDescriptors(), prepare)


def _launch(
    settings: Settings, spec: CapsuleSpec, handed: InheritedDescriptors, prepare: Callable[[LifePaths], None]
) -> Capsule:
    paths = new_life(settings, spec.name)
    try:
        prepare(paths)
        # Not by a file: it holds the service's environment, and with it its secrets.
        start_agent(settings, paths, CAPSULES, spec.model_dump_json().encode(), handed=handed)
    except BaseException:
        if not paths.state.exists():
            remove_rings(paths)
            shutil.rmtree(paths.directory, ignore_errors=True)
        raise
    facts = CapsuleFacts.model_validate_json(paths.state.read_bytes())
    current = paths.directory.parent / "current"
    fresh = paths.directory.parent / ".current"
    fresh.unlink(missing_ok=True)
    fresh.symlink_to(paths.directory.name)
    fresh.replace(current)
    return Capsule(paths, facts)


def new_life(settings: Settings, name: str) -> LifePaths:
    """Make the directory of a new life.

    Raises:
        CapsuleExists: a capsule of that name runs.
        HostIncapable: there is no place in memory for what it records, or the disk takes no writes.
        DiskFull, StoreError: it cannot be made.
    """
    _check_unused(settings, name)
    life = f"{time.strftime('%Y%m%dT%H%M%S')}-{uuid.uuid4().hex[:6]}"
    paths = LifePaths(settings.capsules / name / life)
    try:
        with disk_errors("making the directory of its life", settings.capsules):
            paths.io.mkdir(parents=True)
            paths.recording.mkdir()
            paths.files.mkdir(mode=0o700)
            make_rings(paths)
    except BaseException:
        remove_rings(paths)
        shutil.rmtree(paths.directory, ignore_errors=True)
        raise
    return paths


def _check_unused(settings: Settings, name: str) -> None:
    for capsule in living_capsules(settings):
        if capsule.facts.spec.name == name:
            raise CapsuleExists(
                f"a capsule called {name!r} is running",
                cause=f"its service is process {capsule.lead}",
                remedy=f"`relive attach {name}` takes it over, `relive stop {name}` ends it; or choose another --name",
            )
