"""``python -m relive.forkserver.trial``: a process that does nothing but tell what it is, as JSON.

``relive doctor`` has one forked; tests compare a forked with an executed one. ``--random`` tells a random number instead,
``--exit N`` ends with that status, ``--wait`` waits for a signal.
"""

from __future__ import annotations

import gc
import json
import os
import random
import signal
import sys
import uuid
from pathlib import Path
from typing import Any

from relive.forkserver.attributes import fixed_attributes, settable_attributes

__all__ = ["account", "main"]


def account() -> dict[str, Any]:
    """All that a program could tell a fork by, but for its parent and its memory."""
    status = dict(
        line.split(":\t", 1) for line in Path("/proc/self/status").read_text().splitlines() if ":\t" in line
    )
    descriptors = {int(name): _target(name) for name in os.listdir("/proc/self/fd")}
    return {
        "words": _zero_ended("cmdline"),
        "environment shown": sorted(_zero_ended("environ")),
        "environment": dict(sorted(os.environ.items())),
        "name": status["Name"],
        "directory": str(Path.cwd()),
        "descriptors": {
            number: target for number, target in sorted(descriptors.items()) if target is not None
        },
        "inheritable": sorted(
            number for number, target in descriptors.items() if target and os.get_inheritable(number)
        ),
        "signals": {name: status[name] for name in ("SigIgn", "SigBlk", "SigCgt", "SigPnd", "ShdPnd")},
        "leads a session": os.getsid(0) == os.getpid() == os.getpgid(0),
        "threads": status["Threads"],
        "attributes": fixed_attributes() | settable_attributes(),
        "argv": [sys.argv, sys.orig_argv],
        "path": sys.path,
        "collector": [gc.isenabled(), gc.get_threshold()],
        "streams": [
            [stream.fileno(), stream.encoding, stream.errors, stream.line_buffering]
            for stream in (sys.stdin, sys.stdout, sys.stderr)
        ],
    }


def _target(name: str) -> str | None:
    """What a descriptor leads to; None of that by which they are listed."""
    try:
        return os.readlink(f"/proc/self/fd/{name}")
    except FileNotFoundError:
        return None


def _zero_ended(file: str) -> list[str]:
    return Path("/proc/self", file).read_bytes().decode(errors="surrogateescape").split("\0")[:-1]


def main() -> int:
    """Tell it, or what the first option says."""
    option = sys.argv[1] if len(sys.argv) > 1 else ""
    if option == "--exit":
        return int(sys.argv[2])
    if option == "--wait":
        signal.pause()
    if option == "--random":
        sys.stdout.write(f"{random.random()} {uuid.uuid4()}\n")
        return 0
    sys.stdout.write(json.dumps(account()) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
