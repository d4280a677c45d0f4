"""What is known of the files that a watched service has changed, kept in a file so that the next agent knows it too.

JSON lines. A path is written once, at its first change since the watch began: ``{"at": NS, "path": PATH, "how": HOW}``, HOW being
"created", "changed" or "tree" (a directory that came there with all it holds). What nobody could follow is a line of its own:
``{"at": NS, "gap": TEXT}``, the text as a commit's list of what it leaves out has it. Paths are as the service sees them.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

__all__ = ["CHANGED", "CREATED", "TREE", "JournalWriter", "Journaled", "read_journal"]

CREATED, CHANGED, TREE = "created", "changed", "tree"


@dataclass(slots=True)
class Journaled:
    """What a journal holds.

    Attributes:
        paths: (when it was first changed in nanoseconds since the epoch, how) by path.
        gaps: (when, what was not followed).
    """

    paths: dict[str, tuple[int, str]] = field(default_factory=dict)
    gaps: list[tuple[int, str]] = field(default_factory=list)


def read_journal(path: Path) -> Journaled:
    """All of a journal; empty where there is none. A line that was cut off is passed over."""
    found = Journaled()
    try:
        lines = path.read_bytes().splitlines()
    except FileNotFoundError:
        return found
    for line in lines:
        with contextlib.suppress(ValueError, KeyError, TypeError):
            entry = json.loads(line)
            if "gap" in entry:
                found.gaps.append((int(entry["at"]), str(entry["gap"])))
            else:
                found.paths[os.fsdecode(entry["path"].encode(errors="surrogateescape"))] = (
                    int(entry["at"]),
                    str(entry["how"]),
                )
    return found


class JournalWriter:
    """One that is written to. Not for several threads at once.

    Attributes:
        known: all it holds.
        last_alive_ns: when somebody followed last, before this; None: nobody has.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.last_alive_ns = path.stat().st_mtime_ns if path.exists() else None
        self.known = read_journal(path)
        self._file: BinaryIO = path.open("ab", buffering=0)
        path.chmod(0o600)

    def note(self, path: str, how: str) -> None:
        """A path that is not known yet."""
        at = time.time_ns()
        self.known.paths[path] = (at, how)
        self._write({"at": at, "path": path, "how": how})

    def note_gap(self, place: str, what: str) -> None:
        """Something that nobody could follow, below a place; empty: anywhere."""
        text = f"{place.lstrip('/')}\t{what}"
        if all(text != known for _, known in self.known.gaps):
            at = time.time_ns()
            self.known.gaps.append((at, text))
            self._write({"at": at, "gap": text})

    def note_alive(self) -> None:
        """Somebody follows at this moment."""
        with contextlib.suppress(OSError):
            os.utime(self._path)

    def _write(self, entry: dict[str, object]) -> None:
        # A full disk: what this agent knows stays known as long as it runs.
        with contextlib.suppress(OSError):
            self._file.write(json.dumps(entry).encode() + b"\n")

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()
