"""A child is heard, and reaped, whether it ends by itself or has to be killed."""

from __future__ import annotations

import fcntl
import os
import resource
import subprocess
import sys

import pytest

from relive.kernel.children import read_until, wait_or_kill


def _child(program: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-S", "-c", program], stdin=subprocess.PIPE)


def test_one_that_ends_by_itself_keeps_its_status() -> None:
    with _child("import sys; sys.stdin.read(); sys.exit(7)") as child:
        assert child.stdin is not None
        child.stdin.close()
        assert wait_or_kill(child, 60.0) == 7


def test_one_that_does_not_is_killed_and_reaped() -> None:
    with _child("import sys; sys.stdin.read()") as child:
        assert wait_or_kill(child, 0.0) == -9
        assert child.returncode == -9


@pytest.mark.parametrize(
    ("said", "heard"), [(b"one\nready\n", b"one\nready\n"), (b"one\nrea", b"one\nrea"), (b"", b"")]
)
def test_what_is_said_is_heard_to_its_end_or_to_the_pipes(said: bytes, heard: bytes) -> None:
    reading, writing = os.pipe()
    os.write(writing, said)
    os.close(writing)
    with os.fdopen(reading, "rb", buffering=0) as pipe:
        assert read_until(pipe, b"ready\n", 60.0) == heard


def test_one_that_says_nothing_is_not_waited_for_without_end() -> None:
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb", buffering=0) as pipe:
        assert read_until(pipe, b"\n", 0.0) == b""
    os.close(writing)


def test_a_process_with_many_open_files_hears_its_child() -> None:
    """select(2) knows descriptors below 1024 only; agents and servers may hold more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, hard), hard))
    reading, writing = os.pipe()
    try:
        with os.fdopen(fcntl.fcntl(reading, fcntl.F_DUPFD_CLOEXEC, 1500), "rb", buffering=0) as pipe:
            os.write(writing, b"ready\n")
            assert read_until(pipe, b"ready\n", 60.0) == b"ready\n"
    finally:
        os.close(reading)
        os.close(writing)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
