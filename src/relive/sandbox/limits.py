"""What a branch may take of the machine: what its service might, or else a share that leaves the machine to the services."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from relive.config import Settings
from relive.model.capsule import CapsuleFacts
from relive.model.commit import Manifest, TargetKind
from relive.model.life_paths import LifePaths
from relive.sandbox.cgroups import GroupLimits

__all__ = ["OVERHEAD", "Room", "limits_for", "limits_of", "room_on"]

OVERHEAD = 32 << 20  # [bytes] process 1 and CRIU, which fills the memory from within the group
_GROWTH = 1.5  # a service that has grown beyond the share has at least so many times what its commit holds
_SPARE_PROCESSES = 256


@dataclass(frozen=True, slots=True)
class Room:
    """What a file system has at least, bytes and files, while a branch lives; 0 files where it has no number of them."""

    bytes: int
    files: int


def room_on(place: int | Path, share: float) -> Room:
    """What is to be left of what is free now on the disk of a file, when ``share`` of that may go."""
    disk = os.statvfs(place)
    left = 1.0 - share
    return Room(int(disk.f_bavail * disk.f_frsize * left), int(disk.f_favail * left))


def limits_of(settings: Settings, manifest: Manifest) -> GroupLimits:
    """Those of a commit's branch: the memory that its capsule was given, where that is known here."""
    given = _given_memory(settings, manifest)
    return limits_for(
        given=given,
        held=sum(image.size for image in manifest.images if image.name.startswith("pages-")),
        machine=os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
        share=settings.branch_memory,
        threads=sum(process.threads for process in manifest.target.processes),
        processes=settings.branch_processes,
    )


def limits_for(
    *, given: int | None, held: int, machine: int, share: float, threads: int, processes: int
) -> GroupLimits:
    """The limits of a branch.

    Args:
        given: bytes that its capsule might use; None: no limit.
        held: bytes of memory that the commit holds; machine: that this host has.
        share: what a branch without a limit of its own may have of ``machine``.
        threads: that the commit holds; processes: that a branch may have beside them.
    """
    memory = given if given is not None else max(int(machine * share), int(held * _GROWTH))
    return GroupLimits(memory=memory + OVERHEAD, processes=max(processes, 2 * threads + _SPARE_PROCESSES))


def _given_memory(settings: Settings, manifest: Manifest) -> int | None:
    target = manifest.target
    if target.kind is not TargetKind.CAPSULE or target.life is None:
        return None
    directory = settings.capsules / target.name / target.life
    if not directory.resolve().is_relative_to(settings.capsules):  # names of a commit from elsewhere
        return None
    try:
        return CapsuleFacts.parse(LifePaths(directory).state.read_bytes()).spec.memory
    except (OSError, ValueError):
        return None
