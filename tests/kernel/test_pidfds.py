"""Handles of processes: a number that was used again reaches nobody."""

from __future__ import annotations

import os
import platform
import signal

import pytest

from relive.kernel import procfs
from relive.kernel.namespaces import Namespace, unshare
from relive.kernel.pidfds import (
    copy_descriptor,
    exit_status,
    has_ended,
    open_member,
    open_process,
    send_signal,
)

from .helpers import fork, in_child, needs_root

needs_exit_status = pytest.mark.skipif(
    tuple(int(word) for word in platform.release().split(".")[:2]) < (6, 15), reason="PIDFD_INFO_EXIT"
)


def paused() -> int:
    pid = fork()
    if pid == 0:
        signal.pause()
        os._exit(0)
    return pid


def test_a_process_is_reached_by_its_handle_and_a_stranger_is_not():
    pid = paused()
    stat = procfs.read_stat(pid)
    assert stat is not None
    assert open_process(pid, stat.start_ticks - 1) is None  # the number was used again since
    handle = open_process(pid, stat.start_ticks)
    assert handle is not None and not has_ended(handle)
    assert send_signal(handle, signal.SIGKILL)
    assert has_ended(handle, 10)
    os.waitpid(pid, 0)
    assert not send_signal(handle, signal.SIGTERM)
    assert open_process(pid, stat.start_ticks) is None
    os.close(handle)


@needs_exit_status
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_handle_tells_how_a_process_ended_that_its_parent_has_waited_for(number: int):
    pid = paused()
    handle = open_process(pid)
    assert handle is not None and exit_status(handle) is None
    send_signal(handle, number)
    assert has_ended(handle, 10) and exit_status(handle) is None  # a zombie
    _, status = os.waitpid(pid, 0)
    assert exit_status(handle) == status
    os.close(handle)


def test_only_members_of_the_namespace_are_reached():
    """Who lives in the PID namespace of this process is a member of it, who is gone or in another is not."""
    pid = paused()
    handle = open_member(pid, os.getpid())
    assert handle is not None
    assert open_member(0, os.getpid()) is None
    send_signal(handle, signal.SIGKILL)
    assert has_ended(handle, 10)  # a zombie, whose namespace can still be read
    assert open_member(pid, os.getpid()) is None
    os.waitpid(pid, 0)
    os.close(handle)


@needs_root
def test_a_process_of_another_namespace_is_no_member():
    def work() -> bool:
        unshare(Namespace.PID)
        inner = paused()
        try:
            handle = open_member(inner, inner)
            # Seen from below it is a stranger; seen from its parent it is one of the parent's.
            return handle is not None and open_member(os.getpid(), inner) is None
        finally:
            os.kill(inner, signal.SIGKILL)

    assert in_child(work)


@needs_root
def test_a_process_of_a_namespace_within_is_a_member():
    def work() -> bool:
        unshare(Namespace.PID)
        inner = paused()
        try:
            return open_member(inner, os.getpid()) is not None
        finally:
            os.kill(inner, signal.SIGKILL)

    assert in_child(work)


def test_a_descriptor_of_another_process_is_copied():
    reading, writing = os.pipe()
    pid = paused()
    os.close(writing)
    handle = open_process(pid)
    assert handle is not None
    try:
        copy = copy_descriptor(handle, writing)
        os.write(copy, b"x")
        os.close(copy)
        assert os.read(reading, 2) == b"x"
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(handle)
        os.close(reading)
