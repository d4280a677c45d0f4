"""libc's failures become OSErrors."""

from __future__ import annotations

import errno
import os

import pytest

from relive.kernel import libc


def test_a_call_returns_what_libc_returns():
    assert libc.call("getpid") == os.getpid()
    assert libc.syscall(39) == os.getpid()


def test_a_failure_is_an_oserror_that_names_the_call():
    with pytest.raises(FileNotFoundError, match="rmdir") as caught:
        libc.call("rmdir", b"/nonexistent/x")
    assert caught.value.errno == errno.ENOENT
    with pytest.raises(OSError, match="system call 3") as caught:
        libc.syscall(3, -1)
    assert caught.value.errno == errno.EBADF


def test_nothing_stands_for_zero():
    with pytest.raises(OSError, match="system call 2"):
        libc.syscall(2, None, None)
