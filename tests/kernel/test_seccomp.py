"""io_uring is hidden from a service, and nothing else."""

from __future__ import annotations

import errno
import os
import subprocess
import sys

import pytest

from relive.kernel import libc
from relive.kernel.seccomp import hide_io_uring

from .helpers import in_child, needs_root

pytestmark = needs_root
SETUP, ENTER, REGISTER = 425, 426, 427
BEFORE, AFTER = 424, 428  # pidfd_send_signal, open_tree


def answer(number: int) -> int:
    """The errno of a call with arguments that can only fail."""
    try:
        libc.syscall(number, -1, 0, 0, 0, 0, 0)
    except OSError as error:
        return error.errno or 0
    return 0


@pytest.mark.parametrize("number", [SETUP, ENTER, REGISTER])
def test_its_system_calls_are_unknown(number):
    def work() -> int:
        hide_io_uring()
        return answer(number)

    assert in_child(work) == errno.ENOSYS


@pytest.mark.parametrize("number", [BEFORE, AFTER, 39])
def test_its_neighbours_are_left_alone(number):
    def work() -> int:
        hide_io_uring()
        return answer(number)

    assert in_child(work) == in_child(lambda: answer(number)) != errno.ENOSYS


def test_what_it_starts_does_not_see_it_either():
    def work() -> str:
        hide_io_uring()
        code = (
            "import ctypes; libc = ctypes.CDLL(None, use_errno=True);"
            "print(libc.syscall(425, 1, 0), ctypes.get_errno())"
        )
        return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout

    assert in_child(work).split() == ["-1", str(errno.ENOSYS)]


def test_it_leaves_setuid_programs_as_they_are():
    """no_new_privs would change what sudo and ping do."""

    def work() -> str:
        hide_io_uring()
        return next(line for line in open("/proc/self/status") if line.startswith("NoNewPrivs"))  # noqa: PTH123

    assert in_child(work).split() == ["NoNewPrivs:", "0"]


def test_without_the_right_it_is_refused():
    def work() -> None:
        os.setresuid(65534, 65534, 65534)
        hide_io_uring()

    with pytest.raises(PermissionError):
        in_child(work)
