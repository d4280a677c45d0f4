"""Trying things out in a process of their own, since namespaces and filters cannot be left again."""

from __future__ import annotations

import os
import pickle
import warnings
from collections.abc import Callable
from typing import TypeVar

import pytest

Result = TypeVar("Result")

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


def fork() -> int:
    """Python 3.12 and later warn of it where there are threads; the child here does next to nothing."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def in_child(work: Callable[[], Result]) -> Result:
    """What ``work`` returns or raises in a forked child."""
    reading, writing = os.pipe()
    child = fork()
    if child == 0:
        try:
            answer: tuple[bool, object] = (True, work())
        except BaseException as error:
            answer = (False, error)
        os.write(writing, pickle.dumps(answer))
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        data = pipe.read()
    os.waitpid(child, 0)
    worked, value = pickle.loads(data)
    if not worked:
        raise value
    return value
