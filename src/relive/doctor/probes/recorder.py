"""The recorder's parts in C: whether a Python of this host can load what set-up made of them."""

from __future__ import annotations

import os
import subprocess
import sys

from relive.doctor.finding import Obstacle, ProbeResult, in_words, limited, works
from relive.doctor.probe import ProbeContext
from relive.recording.packed_batch import RING_LIBRARY, PackingLibrary
from relive.sandbox.rootfs import INPROCESS_FILES

__all__ = ["recorder"]

_PROGRAM = "from relive_recorder import quick; print('' if quick.load() is not None else quick.why_not)"


def recorder(context: ProbeContext) -> ProbeResult:
    """Load the one in an interpreter of its own, as a service would, and the agent's here."""
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
    try:
        PackingLibrary(context.settings.tools_path / RING_LIBRARY)
    except OSError as error:
        return limited(
            "what services say is packed in Python, which takes the agent twenty times longer",
            cause=in_words(error),
            remedy="run `make setup`",
        )
    return works("its parts in C are loaded")
