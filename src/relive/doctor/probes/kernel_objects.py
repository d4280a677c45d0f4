"""What a micro-commit reads of a service in the kernel's own objects, instead of asking for all of it in each pause."""

from __future__ import annotations

import subprocess

from relive.checkpoint.criu import CriuTools
from relive.checkpoint.kernel_trust import KernelTrust
from relive.doctor.finding import Obstacle, ProbeResult, limited, works
from relive.doctor.probe import ProbeContext

__all__ = ["kernel_objects"]

_GOOD = "ok"


def kernel_objects(context: ProbeContext) -> ProbeResult:
    """Have the tracker find the members that it reads in the kernel's description of its types, and load its program."""
    program = CriuTools(context.settings.tools_path).micro
    try:
        said = subprocess.run(
            [program, "kernel"], stdout=subprocess.PIPE, check=True, text=True
        ).stdout.strip()
    except (OSError, subprocess.CalledProcessError) as error:
        raise Obstacle("the tracker does not start", cause=str(error), remedy="run `make setup`") from None
    if said != _GOOD:
        return limited(
            "not readable",
            cause=f"the kernel cannot be read: {said}; each micro-commit asks for all, which takes some 0.2 ms of its pause",
            remedy="use a kernel with CONFIG_DEBUG_INFO_BTF that is not locked down, with CAP_BPF and CAP_PERFMON",
        )
    trust = KernelTrust(context.settings.home)
    reason = trust.lost()
    if reason is not None:
        return limited(
            "not believed",
            cause=f"{reason}; since then each micro-commit asks for all, which takes some 0.2 ms of its pause",
            remedy=f"please report this with the kernel's version; to have them believed again, remove {trust.path}",
        )
    return works("read by a BPF program, found by the kernel's own description")
