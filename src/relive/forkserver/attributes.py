"""What a process leaves to those that it starts (fork(2), execve(2)), beside its descriptors, environment and signals.

All of it is read as text, so that two processes can be compared. *Fixed* is what a process cannot take on from another that it was
not forked from; *settable* what it can, mostly.
"""

from __future__ import annotations

import contextlib
import os
import resource
from collections.abc import Callable, Mapping
from pathlib import Path

from relive.kernel import libc

__all__ = ["apply_attributes", "fixed_attributes", "leave_control_groups", "settable_attributes"]

_SELF = Path("/proc/thread-self")
_FIXED_IN_STATUS = (
    *("Uid", "Gid", "Groups", "NoNewPrivs", "Seccomp", "Seccomp_filters", "Mems_allowed", "THP_enabled"),
    *("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"),
)
_PR_GET_SECUREBITS = 27
_PR_SET_TIMERSLACK, _PR_GET_TIMERSLACK = 29, 30
_IOPRIO_SET, _IOPRIO_GET = 251, 252  # system calls, ioprio_set(2)
_IOPRIO_WHO_PROCESS = 1
_LIMITS = sorted(name for name in dir(resource) if name.startswith("RLIMIT_") and name != "RLIMIT_OFILE")
_OOM_SCORE, _DUMP_FILTER = Path("/proc/self/oom_score_adj"), Path("/proc/self/coredump_filter")
_CGROUP_TOPS = (Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/unified"))


def _status() -> dict[str, str]:
    lines = (_SELF / "status").read_text(errors="surrogateescape").splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def fixed_attributes() -> dict[str, str]:
    """Of the calling thread: who it is, what it may, in which namespaces and below which root it lives. Raises OSError."""
    status = _status()
    found = {name: status[name] for name in _FIXED_IN_STATUS if name in status}
    found |= {f"{kind} namespace": os.readlink(_SELF / "ns" / kind) for kind in os.listdir(_SELF / "ns")}
    root = os.stat("/")
    return found | {
        "root directory": f"{root.st_dev}:{root.st_ino}",
        "personality": (_SELF / "personality").read_text().strip(),
        "secure bits": str(libc.call("prctl", _PR_GET_SECUREBITS)),
        # AppArmor's or SELinux's; then what an audit trail (auditd(8)) tells users by, also of what a service does.
        "security label": _text_or_none("attr/current"),
        "login user": _text_or_none("loginuid"),
        "audit session": _text_or_none("sessionid"),
    }


def _text_or_none(name: str) -> str:
    """Of a file in /proc; empty where the kernel has none."""
    try:
        return (_SELF / name).read_text().rstrip("\0\n")
    except OSError:
        return ""


def _set_cgroups(wanted: str) -> None:
    own = set(_cgroups().splitlines())
    for line in wanted.splitlines():
        if line not in own:
            _, controllers, path = line.split(":", 2)
            _join_cgroup(controllers, path)


def _join_cgroup(controllers: str, path: str) -> None:
    tops = [Path("/sys/fs/cgroup") / controllers.removeprefix("name=")] if controllers else _CGROUP_TOPS
    for top in tops:
        members = top / path.lstrip("/") / "cgroup.procs"
        if members.exists() and bool(controllers) != (top / "cgroup.controllers").exists():
            members.write_text("0")
            return


def leave_control_groups() -> None:
    """Go to the top of each hierarchy, where that is allowed: what this process takes from now on counts as nobody's."""
    for line in _cgroups().splitlines():
        _, controllers, path = line.split(":", 2)
        if path != "/":
            with contextlib.suppress(OSError):  # read-only, or not this user's
                _join_cgroup(controllers, "/")


def _cgroups() -> str:
    return (_SELF / "cgroup").read_text(errors="surrogateescape")


def _limits() -> str:
    # In their order.
    return " ".join("{}:{}".format(*resource.getrlimit(getattr(resource, name))) for name in _LIMITS)


def _set_limits(wanted: str) -> None:
    for name, limit in zip(_LIMITS, wanted.split(), strict=True):
        soft, hard = map(int, limit.split(":"))
        if resource.getrlimit(getattr(resource, name)) != (soft, hard):
            resource.setrlimit(getattr(resource, name), (soft, hard))


def _scheduling() -> str:
    nice, policy = os.getpriority(os.PRIO_PROCESS, 0), os.sched_getscheduler(0)
    return f"{policy} {os.sched_getparam(0).sched_priority} {nice}"


def _set_scheduling(wanted: str) -> None:
    policy, priority, nice = map(int, wanted.split())
    os.setpriority(os.PRIO_PROCESS, 0, nice)
    os.sched_setscheduler(0, policy, os.sched_param(priority))


def _set_processors(wanted: str) -> None:
    os.sched_setaffinity(0, map(int, wanted.split()))


# In this order: a control group may decide on processors.
_SETTABLE: Mapping[str, tuple[Callable[[], str], Callable[[str], object]]] = {
    "control groups": (_cgroups, _set_cgroups),
    "resource limits": (_limits, _set_limits),
    "scheduling": (_scheduling, _set_scheduling),
    "processors": (lambda: " ".join(map(str, sorted(os.sched_getaffinity(0)))), _set_processors),
    "I/O priority": (
        lambda: str(libc.syscall(_IOPRIO_GET, _IOPRIO_WHO_PROCESS, 0)),
        lambda wanted: libc.syscall(_IOPRIO_SET, _IOPRIO_WHO_PROCESS, 0, int(wanted)),
    ),
    "timer slack": (
        lambda: str(libc.call("prctl", _PR_GET_TIMERSLACK)),
        lambda wanted: libc.call("prctl", _PR_SET_TIMERSLACK, int(wanted)),
    ),
    "umask": (lambda: _status()["Umask"], lambda wanted: os.umask(int(wanted, 8))),
    "OOM score": (_OOM_SCORE.read_text, _OOM_SCORE.write_text),
    "core dump filter": (_DUMP_FILTER.read_text, lambda wanted: _DUMP_FILTER.write_text(f"0x{wanted}")),
}


def settable_attributes() -> dict[str, str]:
    """Of the calling thread: control groups, limits, priorities, umask. Raises OSError."""
    return {name: read() for name, (read, _) in _SETTABLE.items()}


def apply_attributes(wanted: Mapping[str, str]) -> list[str]:
    """Set what ``settable_attributes`` of another process said; returns the names of those that are not so afterwards."""
    for name, (read, write) in _SETTABLE.items():
        try:
            if read() != wanted.get(name):
                write(wanted[name])
        except (OSError, ValueError, KeyError):
            continue  # looked at below
    own = settable_attributes()
    return sorted(name for name in own.keys() | wanted.keys() if own.get(name) != wanted.get(name))
