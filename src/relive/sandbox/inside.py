"""A command inside a container's branch, whose root file system need not hold any program that could lead there.

Run as ``python -m relive.sandbox.inside PID COMMAND...`` with a process of the branch: COMMAND is executed in that one's
namespaces, as root, with its environment, and with no capability but those that it could still get. The exit status is the
command's; 127 where there is no such program, 126 where it cannot be executed, and 128 and the signal's number for one that was
killed.
"""

from __future__ import annotations

import ctypes
import os
import signal
import struct
import sys
from pathlib import Path
from typing import NoReturn

from relive.kernel import libc
from relive.kernel.procfs import status_field

__all__ = ["command_in"]

_NAMESPACES = ("ipc", "uts", "net", "pid", "mnt")
_PR_CAPBSET_DROP = 24
_CAPABILITY_VERSION = 0x20080522  # of capset(2): two sets of 32 bits
_WORD = 0xFFFFFFFF
_LAST_CAPABILITY = Path("/proc/sys/kernel/cap_last_cap")
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def command_in(pid: int, command: list[str]) -> list[str]:
    """A command line that runs ``command`` there."""
    return [sys.executable, "-P", "-m", "relive.sandbox.inside", str(pid), *command]


def _enter(pid: int) -> None:
    descriptors = [os.open(f"/proc/{pid}/ns/{name}", os.O_RDONLY | os.O_CLOEXEC) for name in _NAMESPACES]
    for descriptor in descriptors:
        libc.call("setns", descriptor, 0)
    os.chdir("/")


def _limit_capabilities(allowed: int, last: int) -> None:
    for number in range(last + 1):
        if not allowed >> number & 1:
            libc.call("prctl", _PR_CAPBSET_DROP, number, 0, 0, 0)
    low, high = allowed & _WORD, allowed >> 32
    header = struct.pack("<II", _CAPABILITY_VERSION, 0)
    sets = struct.pack("<6I", low, low, 0, high, high, 0)  # (effective, permitted, inheritable) of each
    libc.call("capset", ctypes.create_string_buffer(header), ctypes.create_string_buffer(sets))


def _execute(command: list[str], environment: dict[bytes, bytes]) -> NoReturn:
    try:
        os.execvpe(command[0], command, environment)
    except OSError as error:
        os.write(2, f"{command[0]}: {error.strerror}\n".encode())
        os._exit(127 if isinstance(error, FileNotFoundError) else 126)


def _main() -> int:
    pid, command = int(sys.argv[1]), sys.argv[2:]
    allowed = int(status_field(pid, "CapBnd") or "0", 16)
    last = int(_LAST_CAPABILITY.read_text())
    words = [word.partition(b"=") for word in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")]
    environment = {b"PATH": _PATH.encode()} | {name: value for name, equals, value in words if equals}
    _enter(pid)
    child = os.fork()  # only children are in another PID namespace
    if child == 0:
        _limit_capabilities(allowed, last)
        _execute(command, environment)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the command's affair, which gets it too
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return status if status >= 0 else 128 - status


if __name__ == "__main__":
    sys.exit(_main())
