"""What lets a measurement of hours go on after an interruption: rows in a file, and places to work that clean up after the dead.

A run may end at any moment, also by SIGKILL: a line of the file that was cut is dropped, and what a killed run left at work is
stopped and removed by the next one that works in the same directory.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

__all__ = ["Kept", "state_of_the_tree", "workplace"]

_LOCK = "lock"
_LIMIT = 120.0  # [s] to stop what a killed run left
Row = dict[str, Any]


class Kept:
    """The rows of a file, one JSON object a line.

    Args:
        path: None: nothing is kept.
        asked: what was asked for; rows measured for something else are left alone.
        key: what a row has its name in; of several rows of one name the last counts.
    """

    def __init__(self, path: Path | None, asked: Row, key: str) -> None:
        self._path, self._asked, self._key = path, asked, key
        self.rows: dict[str, Row] = {}
        for line in _whole_lines(path) if path is not None and path.exists() else ():
            kept = json.loads(line)
            if kept["asked"] == asked:
                self.rows[kept["row"][key]] = kept["row"]

    def add(self, row: Row) -> Row:
        """Keep one more, on disk before this returns; as it will be read."""
        line = json.dumps({"asked": self._asked, "row": row}, default=str)
        row = json.loads(line)["row"]
        self.rows[row[self._key]] = row
        if self._path is not None:
            with self._path.open("a") as file:
                file.write(line + "\n")
                file.flush()
                os.fsync(file.fileno())
        return row


def _whole_lines(path: Path) -> list[bytes]:
    """Its lines; the end of a file that was cut within one is cut off, so that the next row begins a line."""
    written = path.read_bytes()
    whole = written.rfind(b"\n") + 1
    if whole < len(written):
        os.truncate(path, whole)
    return written[:whole].splitlines()


@contextlib.contextmanager
def workplace(directory: Path, prefix: str, stop: Callable[[Path], None]) -> Iterator[Path]:
    """A new directory in another, gone after the block; first those that a killed run left there are stopped and removed.

    A lock within tells whose run still goes on, whatever has become of its pid.

    Args:
        stop: end what works in such a directory; raises an ``OSError`` or ``SubprocessError`` where it cannot.
    """
    for left in sorted(directory.glob(f"{prefix}*")):
        with contextlib.suppress(OSError), (left / _LOCK).open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(lock.fileno()).st_uid == os.geteuid():  # another's may be hostile
                _remove(left, stop)
    place = Path(tempfile.mkdtemp(prefix=prefix, dir=directory))
    try:
        with (place / "lock.new").open("wb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            (place / "lock.new").rename(place / _LOCK)  # it is held from its first moment
            yield place
    finally:
        _remove(place, stop)


def _remove(place: Path, stop: Callable[[Path], None]) -> None:
    """Stop and remove; what could not be stopped keeps its directory, and is told."""
    try:
        stop(place)
    except (OSError, subprocess.SubprocessError) as error:
        print(f"error: what works in {place} could not be stopped: {error}", file=sys.stderr)
        return
    shutil.rmtree(place, ignore_errors=True)


def state_of_the_tree() -> str:
    """The commit that is measured, ``-dirty`` where files differ from it; "unknown" outside a work tree of git."""
    words = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty", "--abbrev=12"]
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=_LIMIT)
        if done.returncode == 0:
            return done.stdout.strip()
    return "unknown"
