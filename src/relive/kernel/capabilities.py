"""The capabilities with which root leaves a sandbox or harms its host, by their numbers (capabilities(7)); no branch has them."""

from __future__ import annotations

__all__ = ["WITHHELD"]

WITHHELD = {
    # Loading code into the kernel, raw devices and mounts, opening files by handle past the mount namespace, the clock, BPF.
    "CAP_DAC_READ_SEARCH": 2,
    "CAP_LINUX_IMMUTABLE": 9,
    "CAP_SYS_MODULE": 16,
    "CAP_SYS_RAWIO": 17,
    "CAP_SYS_PACCT": 20,
    "CAP_SYS_ADMIN": 21,
    "CAP_SYS_BOOT": 22,
    "CAP_SYS_TIME": 25,
    "CAP_MKNOD": 27,
    "CAP_MAC_OVERRIDE": 32,
    "CAP_MAC_ADMIN": 33,
    "CAP_SYSLOG": 34,
    "CAP_PERFMON": 38,
    "CAP_BPF": 39,
    "CAP_CHECKPOINT_RESTORE": 40,
    # Seizing what has more rights: process 1 of the branch, which notes how the service ended.
    "CAP_SYS_PTRACE": 19,
    # More of the machine than its limits give: memory that cannot be swapped, priority over the host's processes, no end by the
    # kernel when memory runs out, no sleep for the machine.
    "CAP_IPC_LOCK": 14,
    "CAP_SYS_NICE": 23,
    "CAP_SYS_RESOURCE": 24,
    "CAP_WAKE_ALARM": 35,
    "CAP_BLOCK_SUSPEND": 36,
    # The host's audit log, which knows no namespaces.
    "CAP_AUDIT_WRITE": 29,
    "CAP_AUDIT_CONTROL": 30,
    "CAP_AUDIT_READ": 37,
}
