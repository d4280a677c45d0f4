"""Whether micro-commits can be taken here, asked in microseconds; ``doctor.probes.dirty_pages`` tries what they build on."""

from __future__ import annotations

import os
from typing import NamedTuple

from relive.checkpoint.criu import CriuTools
from relive.kernel.pagemap_scan import try_to_scan
from relive.kernel.userfault import notes_writes

__all__ = ["MicroHindrance", "micro_hindrance"]

_KERNEL = "use Linux 6.7 or later"


class MicroHindrance(NamedTuple):
    """Why there are none, and what helps."""

    cause: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.cause}; {self.remedy}"


def micro_hindrance(tools: CriuTools) -> MicroHindrance | None:
    """Why none could be taken, whatever the service is; None: nothing is in their way. As whoever asks: root, for a service."""
    if not os.access(tools.micro, os.X_OK):
        return MicroHindrance(f"there is no {tools.micro.name}", "run `make setup`")
    try:
        if not notes_writes():
            return MicroHindrance("the kernel does not note which pages are written", _KERNEL)
    except OSError as error:
        return _refused("userfaultfd", error)
    try:
        try_to_scan()
    except OSError as error:
        return _refused("PAGEMAP_SCAN", error)
    return None


def _refused(what: str, error: OSError) -> MicroHindrance:
    said = os.strerror(error.errno) if error.errno else str(error)
    return MicroHindrance(
        f"the kernel refuses {what}: {said}",
        f"{_KERNEL}, and let this container have it (its seccomp profile)",
    )
