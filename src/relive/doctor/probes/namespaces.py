"""The namespaces of capsules and branches, each made by a process of its own."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

from relive.doctor.finding import Obstacle, ProbeResult, limited, works
from relive.doctor.probe import ProbeContext, root_remedy
from relive.kernel import libc
from relive.kernel.mounts import MountFlag, make_private, mount
from relive.kernel.namespaces import Namespace, namespace_id, unshare

__all__ = ["namespaces"]

_KINDS = {
    "pid": Namespace.PID,
    "mount": Namespace.MOUNT,
    "net": Namespace.NETWORK,
    "ipc": Namespace.IPC,
    "uts": Namespace.UTS,
}
_CLONE_NEWTIME = 0x80  # CRIU restores into one, so that the monotonic clock goes on from the commit
_NOT_AN_ERRNO = 200  # the child's status where it failed without one
_PROC = Path("/proc")


def namespaces(_ground: ProbeContext) -> ProbeResult:
    """Make one of each kind; in the PID namespace also a first process with a /proc of its own."""
    failed = {}
    for name, kind in _KINDS.items():
        number = _in_child(partial(_make_pid if kind is Namespace.PID else _make, kind))
        if number:
            failed[name] = "it is not a new one" if number >= _NOT_AN_ERRNO else os.strerror(number)
    if failed:
        kinds = ", ".join(f"{name} ({why})" for name, why in failed.items())
        remedy = (
            root_remedy()
            if os.geteuid() != 0
            else (
                "allow namespaces here: outside of containers they are limited by user.max_*_namespaces (sysctl), "
                "inside by the container's seccomp profile and capabilities"
            )
        )
        raise Obstacle(
            f"{len(failed)} of {len(_KINDS)} kinds refused", cause=f"refused: {kinds}", remedy=remedy
        )
    if _in_child(_make_time):
        return limited(
            ", ".join(_KINDS),
            cause="no time namespace can be made: in a branch the monotonic clock jumps to the host's",
            remedy="use a kernel of version 5.6 or later with CONFIG_TIME_NS",
        )
    return works(", ".join([*_KINDS, "time"]))


def _in_child(action: Callable[[], None]) -> int:
    """Run it in a child; returns 0 or an errno."""
    child = os.fork()
    if child == 0:
        code = _NOT_AN_ERRNO
        try:
            action()
            code = 0
        except OSError as error:
            code = min(error.errno or _NOT_AN_ERRNO, _NOT_AN_ERRNO)
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _make(kind: Namespace) -> None:
    before = namespace_id("self", kind)
    unshare(kind)
    if namespace_id("self", kind) == before:
        raise OSError


def _make_pid(kind: Namespace) -> None:
    unshare(kind | Namespace.MOUNT)
    code = _in_child(_be_first)
    if code:
        raise OSError(code, os.strerror(code))


def _be_first() -> None:
    """What process 1 of a capsule does first: mount a /proc that shows nobody but itself."""
    make_private()
    mount("proc", _PROC, "proc", MountFlag.NO_SUID | MountFlag.NO_DEVICES | MountFlag.NO_EXEC)
    if os.getpid() != 1 or [name for name in os.listdir(_PROC) if name.isdigit()] != ["1"]:
        raise OSError


def _make_time() -> None:
    libc.call("unshare", _CLONE_NEWTIME)
