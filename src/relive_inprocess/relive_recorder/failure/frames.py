"""Frames of a traceback: whose code they are, its lines, its locals."""

import os
import stat
import sys
from itertools import islice
from types import FrameType, TracebackType
from typing import Any, Dict, List, Optional, Tuple

from relive_recorder.failure.representation import Representer

__all__ = ["describe", "is_own", "main_directory", "walk"]

Step = Tuple[FrameType, int]

FIRST, LAST = 20, 60  # frames that are kept of a deeper stack: outermost and innermost ones
LOCALS = 60  # of one frame
_AROUND = 5  # lines before and behind
_LINE = 400  # [characters]
_FILE = 4 << 20  # [bytes] longer files are not looked into
_LIBRARY_PARTS = ("/site-packages/", "/dist-packages/")
_standard_library = os.path.dirname(os.__file__) + "/"


def walk(traceback: Optional[TracebackType]) -> Tuple[List[Step], int]:
    """(frame, line) from the outermost to where it was raised, without the recorder's own; and how many were left out."""
    found: List[Step] = []
    while traceback is not None:
        frame = traceback.tb_frame
        if not _module(frame).startswith("relive_recorder"):
            found.append((frame, traceback.tb_lineno or 0))
        traceback = traceback.tb_next
    more = len(found) - FIRST - LAST
    return (found, 0) if more <= 0 else (found[:FIRST] + found[-LAST:], more)


def is_own(frame: FrameType) -> bool:
    """It is the service's code, not that of a library or of Python."""
    file = frame.f_code.co_filename
    if file.startswith("<"):  # made from a text: by a library, unless it is the program (``python -c``)
        return _module(frame) == "__main__"
    if file.startswith(_standard_library):
        return False
    return not any(part in file for part in _LIBRARY_PARTS)


def _module(frame: FrameType) -> str:
    name = frame.f_globals.get("__name__")
    return name if type(name) is str else ""


def describe(step: Step, representer: Representer, files: Dict[str, List[str]]) -> Dict[str, Any]:
    """One frame as it stands in the error package.

    Args:
        files: lines of the files that were read so far.
    """
    frame, line = step
    code = frame.f_code
    shown, cut = _locals(frame, representer)
    return {
        "file": code.co_filename,
        "line": max(line, 0),
        "function": getattr(code, "co_qualname", code.co_name),  # type: ignore[unused-ignore]  # from 3.11 on
        "module": _module(frame),
        "own": is_own(frame),
        "source": _source(code.co_filename, line, files),
        "locals": shown,
        "locals_cut": cut,
    }


def _locals(frame: FrameType, representer: Representer) -> Tuple[Dict[str, str], int]:
    held = frame.f_locals
    # A class body or ``exec`` may have any mapping there; from 3.13 on a function has a proxy of Python's own.
    if type(held) is not dict and type(held).__name__ != "FrameLocalsProxy":
        return {}, 0
    is_module = held is frame.f_globals
    names = [
        name for name in list(held) if type(name) is str and not (is_module and _is_furniture(name, held))
    ]
    shown = {}
    for name in islice(names, LOCALS):
        try:
            shown[name] = representer.named(name, held[name])
        except KeyError:  # a module's, deleted meanwhile
            pass
    return shown, max(0, len(names) - LOCALS)


def _is_furniture(name: str, held: Any) -> bool:
    """Of a module: what it imported or defined, which says nothing about the failure."""
    kind = type(held.get(name))
    return name.startswith("__") or kind is type or kind.__name__ in ("module", "function")


def _source(file: str, line: int, files: Dict[str, List[str]]) -> Optional[Dict[str, Any]]:
    if line <= 0 or file.startswith("<"):
        return None
    lines = files.get(file)
    if lines is None:
        lines = files[file] = _read(file)
    first = max(1, line - _AROUND)
    shown = [text[:_LINE] for text in lines[first - 1 : line + _AROUND]]
    return {"first": first, "lines": shown} if len(shown) > line - first else None


def _read(file: str) -> List[str]:
    """Lines of a source file. Read by descriptor: ``open`` may be one of the things that are recorded."""
    try:
        fd = os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except (OSError, ValueError):
        return []
    try:
        facts = os.fstat(fd)
        if not stat.S_ISREG(facts.st_mode) or facts.st_size > _FILE:
            return []
        return os.read(fd, _FILE).decode("utf-8", "replace").splitlines()
    except OSError:
        return []
    finally:
        os.close(fd)


def main_directory() -> str:
    """Where the program lies that was started; the working directory where that cannot be said."""
    main = sys.modules.get("__main__")
    file = getattr(main, "__dict__", {}).get("__file__")
    return os.path.dirname(os.path.abspath(file)) if type(file) is str else os.getcwd()
