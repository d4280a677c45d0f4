"""No test waits for the disk: what a process leaves when it dies is in the kernel's cache, and the power does not fail here.

An fsync takes milliseconds, and many times that beside others who write; the store's tests call it thousands of times. That it is
called, and when, is what tests look at that put a function of their own in its place. Processes that tests start still sync.
"""

from __future__ import annotations

import os

__all__ = ["wait_for_no_disk"]


def wait_for_no_disk() -> None:
    """Have ``os.fsync`` of this process only look whether the descriptor is one, as it would."""

    def checked(descriptor: object) -> None:
        number = descriptor if isinstance(descriptor, int) else descriptor.fileno()  # type: ignore[attr-defined]
        os.fstat(number)

    os.fsync = checked
