"""io_uring, which CRIU cannot save, and the seccomp filter that hides it from services."""

from __future__ import annotations

import ctypes
import errno
import os

from relive.doctor.finding import Obstacle, ProbeResult, works
from relive.doctor.probe import ProbeContext
from relive.kernel import libc
from relive.kernel.seccomp import hide_io_uring

__all__ = ["io_uring", "seccomp"]

_IO_URING_SETUP = 425
_PARAMETERS_SIZE = 120  # [bytes] struct io_uring_params


def _setup() -> int:
    """Make a ring of one entry and let it go; returns 0, or the errno."""
    parameters = ctypes.create_string_buffer(_PARAMETERS_SIZE)
    try:
        os.close(libc.syscall(_IO_URING_SETUP, 1, ctypes.addressof(parameters)))
    except OSError as error:
        return error.errno or errno.EIO
    return 0


def seccomp(context: ProbeContext) -> ProbeResult:
    """Put the filter of capsules on this process, and see that it hides io_uring and nothing else."""
    try:
        hide_io_uring()
    except OSError as error:
        if error.errno == errno.EINVAL:
            raise Obstacle(
                "none",
                cause="this kernel has no seccomp filters",
                remedy="use one with CONFIG_SECCOMP_FILTER",
            ) from None
        raise
    if _setup() != errno.ENOSYS:
        raise Obstacle("without effect", cause="io_uring_setup(2) is not answered by the filter")
    (context.directory / "still-works").touch()
    return works("the filter of capsules hides io_uring")


def io_uring(_ground: ProbeContext) -> ProbeResult:
    """Only told: whether services could use it. It does not limit capsules, as it is hidden there."""
    number = _setup()
    if number == 0:
        return works("present; hidden from capsules, as CRIU cannot save it")
    return works(f"not usable here ({os.strerror(number)}), so nothing has to be hidden")
