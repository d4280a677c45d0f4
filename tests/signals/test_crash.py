from __future__ import annotations

import os

import pytest

from relive.signals.crash import DISMISSED, Crash
from relive.signals.signals import SignalInfo

INFO = SignalInfo(number=11, code=1, address=0, sender=None)


def test_who_forgets_it_dismisses_its_guardian() -> None:
    reading, writing = os.pipe()
    handle = os.pidfd_open(os.getpid())
    Crash(os.getpid(), os.getpid(), INFO, "pytest", handle, comes_back=True, guard=writing).close()
    assert os.read(reading, 2) == DISMISSED
    assert os.read(reading, 1) == b"", "nobody holds the other end any more"
    os.close(reading)
    with pytest.raises(OSError):
        os.fstat(handle)
