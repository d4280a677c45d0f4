"""What no code expected, as an error of ours: the same in each face, and with an exit status that no verdict has."""

from __future__ import annotations

import os
import traceback
from pathlib import Path

from relive.errors import PermissionMissing, ReliveError

__all__ = ["unforeseen"]

_FRAMES = 4  # of a defect that are told


def unforeseen(raised: BaseException, *, has_text: bool = True) -> ReliveError:
    """The error for an exception of any other class; one for a right that root would have says so.

    Args:
        has_text: what the exception says is told, too. It may hold what not everybody may read.
    """
    if isinstance(raised, PermissionError) and os.geteuid() != 0:
        what = f"{raised.filename} may not be used" if raised.filename is not None else "a right is missing"
        return PermissionMissing(what, cause=raised.strerror, remedy="run it as root: sudo relive ...")
    frames = [
        f"{Path(frame.filename).name}:{frame.lineno}" for frame in traceback.extract_tb(raised.__traceback__)
    ]
    text = " ".join(str(raised).split()) if has_text else ""
    return ReliveError(
        f"{type(raised).__name__}: {text}" if text else type(raised).__name__,
        cause=f"a defect of Relive, at {' < '.join(reversed(frames[-_FRAMES:]))}",
        remedy="please report it, with this line and the command",
    )
