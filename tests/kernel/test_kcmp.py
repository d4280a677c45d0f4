"""What an epoll waits for, compared by the kernel."""

from __future__ import annotations

import os
import select

import pytest

from relive.kernel.kcmp import is_epoll_target


def test_an_open_file_is_known_again_under_another_number() -> None:
    reading, writing = os.pipe()
    copy = os.dup(reading)
    with select.epoll() as epoll:
        epoll.register(reading)
        own = os.getpid()
        assert is_epoll_target(own, reading, epoll.fileno(), reading)
        assert is_epoll_target(own, copy, epoll.fileno(), reading)
        assert not is_epoll_target(own, writing, epoll.fileno(), reading)
        with pytest.raises(OSError):
            is_epoll_target(own, reading, epoll.fileno(), writing)
    for descriptor in (reading, writing, copy):
        os.close(descriptor)
