"""The capabilities with which root leaves a sandbox, by their numbers (capabilities(7)); a branch does not get them."""

from __future__ import annotations

__all__ = ["WITHHELD"]

# Loading code into the kernel, raw devices and mounts, opening files by handle past the mount namespace, the clock, BPF.
WITHHELD = {
    "CAP_DAC_READ_SEARCH": 2,
    "CAP_LINUX_IMMUTABLE": 9,
    "CAP_SYS_MODULE": 16,
    "CAP_SYS_RAWIO": 17,
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
}
