"""Where probes may write: one directory on the file system of ``$RELIVE_HOME``, gone afterwards.

If a doctor was killed, the next one removes what it left: the directory's owner holds a lock on it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from pathlib import Path
from types import TracebackType

from relive.kernel.claims import remove_left_over
from relive.kernel.mounts import Mount, read_mounts

__all__ = ["Scratch", "file_system_of", "nearest_existing"]

_PREFIX = ".relive-doctor-"


def nearest_existing(path: Path) -> Path:
    """The path itself, or the first directory above it that exists and that the caller may look at."""
    # Unlike Path.is_dir(), os.path.isdir() answers False where the caller has no right to know.
    path = path.absolute()
    places = (place for place in (path, *path.parents) if os.path.isdir(place))  # noqa: PTH112
    return next(places, Path("/"))


def file_system_of(path: Path) -> Mount:
    """The mount on which an existing path lies."""
    real = path.resolve()
    above = {str(real), *(str(parent) for parent in real.parents)}
    fitting = [entry for entry in read_mounts() if entry.point in above]
    # Of several at one point the last one made is seen, and max() would give the first.
    return max(reversed(fitting), key=lambda entry: len(entry.point))


class Scratch:
    """A context manager; entering it never fails.

    Attributes:
        above: the existing directory in which it is made: ``$RELIVE_HOME``, or where that would be made.
        failure: why there is no directory; None if there is one.
    """

    def __init__(self, home: Path) -> None:
        self.above = nearest_existing(home)
        self.failure: OSError | None = None
        self._directory: Path | None = None
        self._lock = -1

    def __enter__(self) -> Scratch:
        self._sweep()
        try:
            self._directory = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=self.above))
            self._lock = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            fcntl.flock(self._lock, fcntl.LOCK_EX)
        except OSError as error:
            self.failure = error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._lock >= 0:
            os.close(self._lock)
        if self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)

    def make(self, name: str) -> Path:
        """A fresh directory for one probe.

        Raises:
            OSError: it cannot be made.
        """
        if self._directory is None:
            raise self.failure or FileNotFoundError(str(self.above))
        return Path(tempfile.mkdtemp(prefix=f"{name}-", dir=self._directory))

    def _sweep(self) -> None:
        left_overs: list[Path] = []
        with contextlib.suppress(OSError):
            left_overs = [
                Path(entry.path)
                for entry in os.scandir(self.above)
                if entry.name.startswith(_PREFIX) and entry.is_dir(follow_symlinks=False)
            ]
        for left_over in left_overs:
            remove_left_over(left_over)
