"""Root, and the capabilities that Relive and CRIU use (capabilities(7))."""

from __future__ import annotations

import os
from pathlib import Path

from relive.doctor.finding import ProbeResult, fails, limited, works
from relive.doctor.probe import ProbeContext
from relive.kernel import procfs

__all__ = ["judge", "privileges"]

# name: (bit, what does not work without it). The order is that of the report.
_NEEDED = {
    "CAP_SYS_ADMIN": (21, "no namespaces and no mounts, so no capsules and no branches"),
    "CAP_SYS_PTRACE": (19, "no process can be committed"),
    "CAP_NET_ADMIN": (12, "open connections cannot be committed or restored"),
    "CAP_DAC_OVERRIDE": (1, "files of other users cannot be committed"),
    "CAP_CHOWN": (0, "restored files cannot be given their owners"),
    "CAP_FOWNER": (3, "restored files cannot be given their modes and times"),
    "CAP_SETUID": (7, "services of other users cannot be restored"),
    "CAP_SETGID": (6, "services of other users cannot be restored"),
    "CAP_SETPCAP": (8, "capabilities of services cannot be restored"),
    "CAP_KILL": (5, "services of other users cannot be stopped and resumed"),
    "CAP_SYS_CHROOT": (18, "the mount namespace of a capsule cannot be entered"),
    "CAP_MKNOD": (27, "branches cannot be given a /dev of their own"),
}
_USEFUL = {
    "CAP_SYS_RESOURCE": (24, "limits of a branch cannot be raised above those of Relive itself"),
    "CAP_FSETID": (4, "set-user-id bits of restored files may be lost"),
    "CAP_SYS_NICE": (23, "priorities and processor bindings may not be restored"),
    "CAP_IPC_LOCK": (14, "locked memory may not be restored"),
    "CAP_NET_RAW": (13, "services with raw sockets cannot be restored"),
}
_WHOLE_ID_RANGE = ["0", "0", "4294967295"]


def privileges(context: ProbeContext) -> ProbeResult:
    """Who we are and what we may."""
    effective = int(procfs.status_field(os.getpid(), "CapEff") or "0", 16)
    nested = Path("/proc/self/uid_map").read_text().split() != _WHOLE_ID_RANGE
    shim = (context.settings.tools_path / "prlimit_shim.so").exists()
    return judge(os.geteuid(), effective, in_user_namespace=nested, shim=shim)


def judge(uid: int, effective: int, *, in_user_namespace: bool, shim: bool) -> ProbeResult:
    """What follows from a user id and a set of effective capabilities (bit mask)."""
    lacking = {name: why for name, (bit, why) in _NEEDED.items() if not effective >> bit & 1}
    if uid != 0:
        return fails(
            f"uid {uid}, not root",
            cause="only root may look into other processes, make namespaces and restore processes",
            remedy="run it as root, for instance with sudo",
        )
    if lacking:
        return fails(
            f"root without {', '.join(lacking)}",
            cause="; ".join(f"{name}: {why}" for name, why in lacking.items()),
            remedy="give this container or virtual machine these capabilities (podman: --cap-add for each)",
        )
    if in_user_namespace:
        return limited(
            "root of a user namespace only",
            cause="this root is an ordinary user outside, so the kernel refuses it much despite its capabilities",
            remedy="run Relive outside of the rootless container",
        )
    absent = {name: why for name, (bit, why) in _USEFUL.items() if not effective >> bit & 1}
    if not absent:
        return works("root with every capability that Relive uses")
    cause = "; ".join(f"{name}: {why}" for name, why in absent.items())
    if "CAP_SYS_RESOURCE" in absent:
        stands_in = (
            "the prlimit shim stands in for that"
            if shim
            else "and the prlimit shim, which would stand in, is missing"
        )
        cause += f" (without CAP_SYS_RESOURCE CRIU may not even read the limits of other users' processes: {stands_in})"
    return limited(
        f"root without {', '.join(absent)}",
        cause=cause,
        remedy="commits and branches work; to lift the limits, give this container or virtual machine the capability",
    )
