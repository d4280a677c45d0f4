"""The recorder's part in C: whether a Python of this host can load what set-up made of it."""

from __future__ import annotations

import os
import subprocess
import sys

from relive.doctor.finding import Obstacle, ProbeResult, limited, works
from relive.doctor.probe import ProbeContext
from relive.sandbox.rootfs import INPROCESS_FILES

__all__ = ["recorder"]

_PROGRAM = "from relive_recorder import quick; print('' if quick.load() is not None else quick.why_not)"


def recorder(_ground: ProbeContext) -> ProbeResult:
    """Load it in an interpreter of its own, as a service would."""
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM],
        env={**os.environ, "PYTHONPATH": str(INPROCESS_FILES), "RELIVE_RECORDER": ""},
        capture_output=True,
        text=True,
        timeout=3,
        check=False,
    )
    if done.returncode != 0:
        raise Obstacle("it cannot be imported", cause=done.stderr.strip().rpartition("\n")[2])
    why_not = done.stdout.strip()
    if why_not:
        return limited(
            "only in Python, which is several times slower", cause=why_not, remedy="run `make setup`"
        )
    return works("its part in C is loaded")
