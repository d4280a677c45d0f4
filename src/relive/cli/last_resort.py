"""What is told of a command that could not even tell its error: a broken installation, a defect where errors are told.

Nothing else of Relive is imported, since any of it may be what is broken.
"""

from __future__ import annotations

import json
import sys
import traceback
from pathlib import Path
from typing import NoReturn

__all__ = ["end_broken"]

_DEFECT = 70  # the exit status; 1 would be a verdict
_FRAMES = 4


def end_broken(error: Exception) -> NoReturn:
    """Tell it as any error, in four parts, and end this process with the status of a defect."""
    frames = [f"{Path(one.filename).name}:{one.lineno}" for one in traceback.extract_tb(error.__traceback__)]
    shown = {
        "code": "error",
        "message": " ".join(f"{type(error).__name__}: {error}".split()),
        "cause": f"a defect of Relive, or an installation that is not whole, at {' < '.join(reversed(frames[-_FRAMES:]))}",
        "remedy": "install it again; if it stays so, please report it with this line and the command",
    }
    if "--json" in sys.argv:
        sys.stdout.write(json.dumps({"error": shown}, indent=2) + "\n")
    else:
        text = f"Error: {shown['message']} (error)\nCause: {shown['cause']}\nRemedy: {shown['remedy']}\n"
        sys.stderr.write(text)
    sys.exit(_DEFECT)
