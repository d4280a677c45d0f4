"""Whether micro-commits can be taken here, asked in microseconds; ``doctor.probes.dirty_pages`` tries what they build on."""

from __future__ import annotations

import os

from relive.checkpoint.criu import CriuTools
from relive.kernel.userfault import notes_writes

__all__ = ["micro_hindrance"]


def micro_hindrance(tools: CriuTools) -> str | None:
    """Why none could be taken, whatever the service is; None: nothing is in their way. As whoever asks: root, for a service."""
    if not os.access(tools.micro, os.X_OK):
        return f"there is no {tools.micro.name}; run `make setup`"
    try:
        if not notes_writes():
            return "the kernel does not note which pages are written (Linux 6.7)"
    except OSError as error:
        return f"userfaultfd: {error.strerror}"
    return None
