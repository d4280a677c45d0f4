"""All probes, in the order in which they run and are shown: first what everything else stands on."""

from __future__ import annotations

from collections.abc import Sequence

from relive.config import Settings
from relive.doctor.finding import Finding
from relive.doctor.probe import DEFECT, Probe, conduct
from relive.doctor.probes.border import border
from relive.doctor.probes.calls import calls
from relive.doctor.probes.dirty_pages import dirty_pages
from relive.doctor.probes.disk import disk, reflink
from relive.doctor.probes.docker import docker
from relive.doctor.probes.dump_restore import dump_restore, dump_restore_other_user
from relive.doctor.probes.followed_files import followed_files
from relive.doctor.probes.fork_server import fork_server
from relive.doctor.probes.io_uring import io_uring, seccomp
from relive.doctor.probes.kernel_cache import kernel_cache
from relive.doctor.probes.kernel_objects import kernel_objects
from relive.doctor.probes.kvm import kvm
from relive.doctor.probes.memory_cgroup import memory_cgroup
from relive.doctor.probes.namespaces import namespaces
from relive.doctor.probes.overlay import overlay
from relive.doctor.probes.packets import packets
from relive.doctor.probes.podman import podman
from relive.doctor.probes.privileges import privileges
from relive.doctor.probes.processes import pidfd, proc_children, tracing
from relive.doctor.probes.recorder import recorder
from relive.doctor.probes.tcp_repair import tcp_repair
from relive.doctor.probes.tools import tools
from relive.doctor.scratch import Scratch

__all__ = ["CHECKLIST", "examine"]

_SETUP = "run `make setup`, which tries the installed CRIU and builds a newer one if need be"
_KERNEL = "use a kernel of version 5.9 or later that has it configured"

CHECKLIST: tuple[Probe, ...] = (
    Probe("privileges", True, 1.0, privileges, DEFECT),
    Probe("tools", True, 5.0, tools, "run `make setup`"),
    Probe(
        "disk",
        True,
        5.0,
        disk,
        "set RELIVE_HOME to a directory on a disk that can be written",
        needs_directory=True,
    ),
    Probe("namespaces", True, 3.0, namespaces, _KERNEL),
    Probe("overlayfs", True, 3.0, overlay, _KERNEL, needs_directory=True),
    Probe("followed files", False, 3.0, followed_files, _KERNEL, needs_directory=True),
    Probe("seccomp", True, 1.0, seccomp, _KERNEL),
    Probe("ptrace", True, 2.0, tracing, _KERNEL),
    Probe("/proc children", True, 1.0, proc_children, _KERNEL),
    Probe("pidfd", True, 2.0, pidfd, _KERNEL),
    Probe("TCP_REPAIR", True, 3.0, tcp_repair, _KERNEL),
    Probe("CRIU dump and restore", True, 15.0, dump_restore, _SETUP, needs_directory=True),
    Probe("CRIU, other user's process", True, 15.0, dump_restore_other_user, _SETUP, needs_directory=True),
    Probe("CRIU kernel cache", False, 5.0, kernel_cache, _SETUP, needs_directory=True),
    Probe("recorder", False, 4.0, recorder, "run `make setup`"),
    Probe(
        "border of a capsule",
        False,
        8.0,
        border,
        "install iproute2 and iptables, and use a kernel with CGROUP_BPF, NFQUEUE, TPROXY and REJECT, if you need --record-egress",
    ),
    Probe(
        "calls beside their way",
        False,
        6.0,
        calls,
        "use a kernel of version 5.11 or later with CONFIG_CGROUP_BPF, if you need --egress beside",
        needs_directory=True,
    ),
    Probe("packets of a port", False, 6.0, packets, "run `make setup`", needs_directory=True),
    Probe("io_uring", False, 1.0, io_uring, DEFECT),
    Probe("fork server", False, 15.0, fork_server, DEFECT),
    Probe("memory cgroup", False, 1.0, memory_cgroup, "give this container a cgroup that it may write to"),
    Probe(
        "dirty pages", False, 2.0, dirty_pages, "use a kernel of version 6.7 or later with CONFIG_USERFAULTFD"
    ),
    Probe("kernel objects", False, 4.0, kernel_objects, "run `make setup`"),
    Probe(
        "reflink",
        False,
        2.0,
        reflink,
        "set RELIVE_HOME to a directory on a disk that can be written",
        needs_directory=True,
    ),
    Probe(
        "KVM",
        False,
        2.0,
        kvm,
        "use a machine with hardware virtualisation; a guest that hangs means it is emulated here",
    ),
    Probe(
        "podman", False, 5.0, podman, "mend podman; `podman info` shows what is wrong", needs_directory=True
    ),
    Probe("Docker", False, 5.0, docker, "mend Docker; `docker info` shows what is wrong"),
)


def examine(settings: Settings, probes: Sequence[Probe] = CHECKLIST) -> list[Finding]:
    """Run probes one after the other, so that none disturbs another's; call it from a process with one thread.

    Nothing is left behind but CRIU's kernel cache in its run directory, which every use of CRIU puts there.
    """
    with Scratch(settings.home) as scratch:
        return [conduct(probe, settings, scratch) for probe in probes]
