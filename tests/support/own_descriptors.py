"""That this process closes, and puts others in the place of, descriptors of its own only.

A number that is closed twice, or taken though it is open, belongs to somebody else the next time: a test fails that did nothing. It
need not show here at all: libuv keeps two numbers for as long as the process lives, and closes them in whatever is forked.

A plugin of pytest; it sees what Python does, not what libraries in C do, nor what is done in forked processes.
"""

from __future__ import annotations

import errno
import os
import traceback

import pytest

__all__ = ["WRONG", "pytest_configure", "pytest_runtest_teardown"]

WRONG: list[str] = []  # what was done, and where; since the last test
_MINE = os.getpid()
_close, _dup2, _closerange = os.close, os.dup2, os.closerange


def _note(what: str) -> None:
    if os.getpid() == _MINE:
        WRONG.append(f"{what}:\n{''.join(traceback.format_stack(limit=6)[:-2])}")


def _closed(fd: int) -> None:
    try:
        _close(fd)
    except OSError as error:
        if error.errno == errno.EBADF:
            _note(f"descriptor {fd} was closed, which was not open")
        raise


def _replaced(fd: int, fd2: int, inheritable: bool = True) -> int:
    if fd2 > 2 and fd != fd2 and _is_open(fd2):
        _note(f"descriptor {fd2} was open, and another was put in its place")
    return _dup2(fd, fd2, inheritable)


def _closed_range(fd_low: int, fd_high: int, /) -> None:
    _note(f"descriptors {fd_low} to {fd_high} were closed, whose ever they are")
    _closerange(fd_low, fd_high)


def _is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


def pytest_configure() -> None:
    os.close, os.dup2, os.closerange = _closed, _replaced, _closed_range  # type: ignore[assignment]


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown() -> None:
    if WRONG:
        told = "\n".join(WRONG)
        WRONG.clear()
        pytest.fail(told, pytrace=False)
