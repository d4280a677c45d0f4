"""What a process under the filter of a branch can still do: tried by one under the very filter."""

from __future__ import annotations

import ctypes
import errno
import os
import pty
import socket
import struct
from collections.abc import Callable

import pytest

from relive.kernel.sandboxcalls import ALLOWED_FAMILIES, SANDBOX_FILTER

_NEW_USER, _SIGNAL_OF_CHILD = 0x10000000, 17
_TIOCSTI = 0x5412
libc = ctypes.CDLL(None, use_errno=True)


def under_the_filter(attempt: Callable[[], int]) -> int:
    """errno of an attempt in a child under the filter; 0 when it went well."""
    child = os.fork()
    if child == 0:
        program = ctypes.create_string_buffer(SANDBOX_FILTER)
        header = struct.pack("HxxxxxxQ", len(SANDBOX_FILTER) // 8, ctypes.addressof(program))
        if libc.prctl(22, 2, header, 0, 0) != 0:
            os._exit(255)
        os._exit(0 if attempt() >= 0 else ctypes.get_errno())
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.parametrize("family", [*ALLOWED_FAMILIES[:3], socket.AF_NETLINK])
def test_families_that_stay_within_the_network_are_allowed(family: int) -> None:
    assert under_the_filter(lambda: libc.socket(family, socket.SOCK_DGRAM, 0)) == 0


@pytest.mark.parametrize("family", [socket.AF_VSOCK, 31, 42, 44])  # the last: Bluetooth, QRTR, XDP
def test_others_are_not_there(family: int) -> None:
    assert family not in ALLOWED_FAMILIES
    assert under_the_filter(lambda: libc.socket(family, socket.SOCK_DGRAM, 0)) == errno.EAFNOSUPPORT


def test_neither_is_the_audit_system() -> None:
    ask = lambda: libc.socket(socket.AF_NETLINK, socket.SOCK_RAW, 9)  # noqa: E731
    assert under_the_filter(ask) == errno.EPROTONOSUPPORT


def call(number: int, *arguments: object) -> Callable[[], int]:
    return lambda: int(libc.syscall(number, *arguments))


@pytest.mark.parametrize(
    "number",
    [425, 426, 427, 248, 249, 250, 435],
    ids="setup enter register add request keyctl clone3".split(),
)
def test_calls_of_a_kernel_without_rings_and_keyrings_fail_so(number: int) -> None:
    assert under_the_filter(call(number, 0, 0, 0, 0, 0)) == errno.ENOSYS


@pytest.mark.parametrize("number", [298, 304, 321], ids=["perf", "handle", "bpf"])
def test_calls_of_the_privileged_are_forbidden(number: int) -> None:
    assert under_the_filter(call(number, 0, 0, 0, 0, 0)) == errno.EPERM


def test_nobody_gets_a_user_namespace() -> None:
    assert under_the_filter(call(272, _NEW_USER)) == errno.EPERM
    assert under_the_filter(call(56, _NEW_USER | _SIGNAL_OF_CHILD, 0, 0, 0, 0)) == errno.EPERM


def test_processes_threads_and_other_files_are_as_ever() -> None:
    def work() -> int:
        child = os.fork()
        if child == 0:
            os._exit(7)
        return 0 if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7 else -1

    assert under_the_filter(work) == 0
    assert under_the_filter(call(272, 0x400)) == 0  # CLONE_FILES


def test_nothing_is_put_into_a_terminal() -> None:
    master, terminal = pty.openpty()
    try:
        word = ctypes.create_string_buffer(b"x")
        assert under_the_filter(call(16, terminal, _TIOCSTI, word)) == errno.EPERM
        assert under_the_filter(call(16, terminal, 0x5413, ctypes.create_string_buffer(8))) == 0  # TIOCGWINSZ
    finally:
        os.close(master)
        os.close(terminal)
