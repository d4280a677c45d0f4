"""To other processes: those of the host, process 1 of the branch, and by rights that others have."""

from __future__ import annotations

import ctypes
import os
import resource
import struct
from pathlib import Path

from ways import FACTS, call, way


@way
def process_1_as_an_accomplice() -> object:
    """Process 1 can be traced by root; it must have no capabilities that we have not."""
    own, its = (
        int(Path(f"/proc/{pid}/status").read_text().partition("CapPrm:")[2].split()[0], 16)
        for pid in ("self", 1)
    )
    if its & ~own:
        return f"{its:x} but {own:x}"
    raise OSError("it can do nothing more")


@way
def kill_of_a_host_process() -> None:
    os.kill(FACTS["pid"], 0)


@way
def trace_of_a_host_process() -> int:
    return call("ptrace", 16, FACTS["pid"], 0, 0)


@way
def user_namespace() -> int:
    return call("unshare", 0x10000000)


@way
def user_namespace_of_a_child() -> int:
    return call("syscall", 56, 0x10000000 | 17, 0, 0, 0, 0)


@way
def user_namespace_of_a_child_by_the_new_call() -> int:
    return call(
        "syscall", 435, ctypes.create_string_buffer(struct.pack("QQQQQ", 0x10000000, 0, 0, 0, 17), 88), 88
    )


@way
def cgroup_namespace() -> int:
    return call("unshare", 0x02000000)


@way
def control_groups_of_the_host() -> object:
    """Groups lie beside the sysfs of the host; a branch has no file system of them."""
    found = list(Path("/sys/fs/cgroup").rglob("cgroup.procs"))
    if not found:
        raise OSError("there are none")
    return str(found[0])


@way
def paths_of_the_hosts_groups() -> object:
    others = [line for line in Path("/proc/self/cgroup").read_text().splitlines() if not line.endswith(":/")]
    if not others:
        raise OSError("its own are the root")
    return others


@way
def memory_of_process_1() -> object:
    return os.open("/proc/1/mem", os.O_RDWR)


@way
def descriptors_of_process_1() -> object:
    names = os.listdir("/proc/1/fd")
    return [os.readlink(f"/proc/1/fd/{name}") for name in names]


@way
def descriptor_taken_from_process_1() -> int:
    return call("syscall", 438, os.pidfd_open(1), 3, 0)  # pidfd_getfd


@way
def trace_of_process_1() -> int:
    return call("ptrace", 0x4206, 1, 0, 0)  # PTRACE_SEIZE


@way
def write_into_process_1() -> int:
    word = ctypes.create_string_buffer(8)
    own, its = struct.pack("QQ", ctypes.addressof(word), 8), struct.pack("QQ", 0x400000, 8)
    return call("process_vm_writev", 1, own, 1, its, 1, 0)


@way
def end_of_process_1() -> object:
    os.kill(1, 9)
    if Path("/proc/1/stat").exists():
        raise OSError("it ignores its children")
    return "killed"


@way
def real_time() -> object:
    return os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1)) or "real-time"


@way
def priority() -> int:
    return os.nice(-1)


@way
def locked_memory_without_a_limit() -> int:
    resource.setrlimit(resource.RLIMIT_MEMLOCK, (65536, resource.getrlimit(resource.RLIMIT_MEMLOCK)[1]))
    memory = ctypes.create_string_buffer(16 << 20)
    return call("mlock", memory, len(memory))


@way
def quiet_disk() -> int:
    return call("syscall", 251, 1, 0, 1 << 13)  # ioprio_set, real-time
