"""System calls that nothing in a branch makes: what is restored there, and what is run there later, have one seccomp filter.

It closes what no namespace is the border of, and fails each call as a kernel does that was built without it, which programs have
to cope with (seccomp(2)):

- families of sockets other than ``ALLOWED_FAMILIES``: AF_VSOCK reaches the hypervisor of a virtual machine, and on its host every
  machine, from any namespace (vsock(7)); Bluetooth and others act on devices of the whole machine. EAFNOSUPPORT.
- netlink sockets of the audit system, whose log is the host's. EPROTONOSUPPORT.
- io_uring, which makes sockets and opens files without these calls. ENOSYS.
- keyrings: root's are those of root on the host (user-keyring(7)). ENOSYS.
- user namespaces, in which a process has every capability again, so that it reaches parts of the kernel that are closed to it, and
  mounts file systems such as those of control groups. EPERM, as where the host's settings forbid them. The flags of ``clone3`` lie
  in memory, where a filter does not see them: ENOSYS, and C libraries take ``clone``.
- BPF, performance counters, files opened by handle: EPERM, as for every process without the capability.
- input put into a terminal (TIOCSTI, and TIOCLINUX): the terminal of `relive exec` is that of a shell of the host. EPERM.
"""

from __future__ import annotations

import errno
import socket
import struct
from typing import NamedTuple

__all__ = ["ALLOWED_FAMILIES", "SANDBOX_FILTER"]

# Families that may be used, beside AF_NETLINK.
ALLOWED_FAMILIES = (
    socket.AF_UNIX,
    socket.AF_INET,
    socket.AF_INET6,
    socket.AF_PACKET,
    socket.AF_ALG,  # the kernel's ciphers: it goes nowhere
)
_NETLINK_AUDIT = 9
_NEW_USER = 0x10000000  # CLONE_NEWUSER
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C

_ARCHITECTURE_64 = 0xC000003E  # AUDIT_ARCH_X86_64
_X32_CALLS = 0x40000000
# syscall_64.tbl and syscall_32.tbl of the kernel
_SOCKET, _CLONE, _UNSHARE, _IOCTL = (41, 359), (56, 120), (272, 310), (16, 54)
_SOCKETCALL_32 = 102
_CLONE3 = 435  # in both tables, as io_uring's
_IO_URING_FIRST, _IO_URING_LAST = 425, 427
_KEYS = ((248, 249, 250), (286, 287, 288))  # add_key, request_key, keyctl
_PRIVILEGED = ((298, 304, 321), (336, 342, 357))  # perf_event_open, open_by_handle_at, bpf
# Places in struct seccomp_data; of the arguments the lower halves.
_NUMBER, _ARCHITECTURE, _FIRST, _SECOND, _THIRD = 0, 4, 16, 24, 32
_LOAD, _EQUAL, _AT_LEAST, _MORE, _ANY_OF, _RETURN = 0x20, 0x15, 0x35, 0x25, 0x45, 0x06
_FAIL, _ALLOW = 0x00050000, 0x7FFF0000


class _Step(NamedTuple):
    """An instruction; jumps go to the step of that name, or to the next one."""

    code: int
    value: int
    name: str = ""
    if_so: str = ""
    if_not: str = ""


def _assembled(steps: list[_Step]) -> bytes:
    """struct sock_filter[]: (u16 code, u8 jump if true, u8 jump if not, u32 value)."""
    places = {step.name: place for place, step in enumerate(steps) if step.name}

    def jump(place: int, name: str) -> int:
        return places[name] - place - 1 if name else 0

    return b"".join(
        struct.pack("<HBBI", step.code, jump(place, step.if_so), jump(place, step.if_not), step.value)
        for place, step in enumerate(steps)
    )


def _calls(table: int) -> list[_Step]:
    """What becomes of a call, whose number is loaded, by the table of 64 (0) or 32 bits (1)."""
    return [
        _Step(_EQUAL, _SOCKET[table], if_so="socket"),
        _Step(_EQUAL, _CLONE[table], if_so="namespaces"),
        _Step(_EQUAL, _UNSHARE[table], if_so="namespaces"),
        _Step(_EQUAL, _IOCTL[table], if_so="terminal"),
        _Step(_EQUAL, _CLONE3, if_so="no such call"),
        *(_Step(_EQUAL, number, if_so="no such call") for number in _KEYS[table]),
        *(_Step(_EQUAL, number, if_so="forbidden") for number in _PRIVILEGED[table]),
    ]


SANDBOX_FILTER = _assembled(
    [
        _Step(_LOAD, _ARCHITECTURE),
        _Step(_EQUAL, _ARCHITECTURE_64, if_not="32 bits"),
        _Step(_LOAD, _NUMBER),
        _Step(_AT_LEAST, _X32_CALLS, if_so="no such call"),
        *_calls(0),
        _Step(_AT_LEAST, 0, if_so="ring"),
        _Step(_LOAD, _NUMBER, name="32 bits"),
        *_calls(1),
        # Its arguments lie in memory, where a filter does not see them; libraries of today do not use it.
        _Step(_EQUAL, _SOCKETCALL_32, if_so="no such family"),
        _Step(_AT_LEAST, _IO_URING_FIRST, name="ring", if_not="allowed"),
        _Step(_MORE, _IO_URING_LAST, if_so="allowed", if_not="no such call"),
        _Step(_LOAD, _FIRST, name="namespaces"),
        _Step(_ANY_OF, _NEW_USER, if_so="forbidden", if_not="allowed"),
        _Step(_LOAD, _SECOND, name="terminal"),
        _Step(_EQUAL, _TIOCSTI, if_so="forbidden"),
        _Step(_EQUAL, _TIOCLINUX, if_so="forbidden", if_not="allowed"),
        _Step(_LOAD, _FIRST, name="socket"),
        *(_Step(_EQUAL, family, if_so="allowed") for family in ALLOWED_FAMILIES),
        _Step(_EQUAL, socket.AF_NETLINK, if_not="no such family"),
        _Step(_LOAD, _THIRD),
        _Step(_EQUAL, _NETLINK_AUDIT, if_so="no such protocol", if_not="allowed"),
        _Step(_RETURN, _FAIL | errno.EAFNOSUPPORT, name="no such family"),
        _Step(_RETURN, _FAIL | errno.EPROTONOSUPPORT, name="no such protocol"),
        _Step(_RETURN, _FAIL | errno.ENOSYS, name="no such call"),
        _Step(_RETURN, _FAIL | errno.EPERM, name="forbidden"),
        _Step(_RETURN, _ALLOW, name="allowed"),
    ]
)
