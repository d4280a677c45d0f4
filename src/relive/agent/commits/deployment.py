"""Whether another revision of a service's code lies where it runs, for ``--every deploy``.

Looked at from outside, once a second:

- the git commit that is checked out in the working directory of the service's first process, or above it;
- its program, and the first word of its command that is a file (a script, an archive of classes): which file that is, its size and
  when it was changed.

The service need not have loaded it: the commit is of the last state before it does, or of the first behind it. Who ends the old
process and starts another gets a commit at each start anyway, whatever ``--every`` says but ``never``.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from relive.kernel import procfs
from relive_inprocess.relive_recorder.failure import revision

__all__ = ["CodeSample", "Deployments", "look_at_code"]


@dataclass(frozen=True, slots=True)
class CodeSample:
    """One look.

    Attributes:
        revision: git's commit in hex; None: none is checked out there.
        files: device, inode, size and time of change [ns] of the program and of the file in its command; None: it has gone.
    """

    revision: str | None
    files: tuple[tuple[int, int, int, int] | None, ...]

    def is_whole(self) -> bool:
        """None of it is just being replaced."""
        return None not in self.files


def look_at_code(pid: int) -> CodeSample:
    """As it is now; pid: of the service's first process."""
    root = f"/proc/{pid}/root"
    try:
        directory, program = os.readlink(f"/proc/{pid}/cwd"), os.readlink(f"/proc/{pid}/exe")
    except OSError:
        return CodeSample(None, (None,))
    found = revision.look(root + directory)
    files = [program.removesuffix(" (deleted)"), *_file_in(root, directory, procfs.command_of(pid) or [])]
    return CodeSample(
        found["commit"] if found is not None else None, tuple(_facts(root + one) for one in files)
    )


def _file_in(root: str, directory: str, command: Sequence[str]) -> list[str]:
    """The first word that is a file, as a list of one; an empty one where there is none."""
    paths = (f"{directory}/{word}" if word[:1] != "/" else word for word in command[1:] if word[:1] != "-")
    return [path for path in paths if _facts(root + path) is not None][:1]


def _facts(path: str) -> tuple[int, int, int, int] | None:
    try:
        facts = os.stat(path)
    except (OSError, ValueError):
        return None
    if not stat.S_ISREG(facts.st_mode):
        return None
    return facts.st_dev, facts.st_ino, facts.st_size, facts.st_mtime_ns


class Deployments:
    """Of one service.

    Args:
        looks: tells what lies there now.
    """

    def __init__(self, looks: Callable[[], CodeSample]) -> None:
        self._looks = looks
        self._of_commit = self._last = looks()

    def has_changed(self, seconds: float) -> bool:
        """Another revision than at the last commit lies there, and the look before saw the same: all of it is there."""
        del seconds
        before, self._last = self._last, self._looks()
        now = self._last
        return now == before and now.is_whole() and now != self._of_commit

    def committed(self) -> None:
        """The last look belongs to the commit; what came since has not been seen twice."""
        self._of_commit = self._last
