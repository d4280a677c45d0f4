"""An exception and those it came from, read without running code of their classes."""

import builtins
import hashlib
import os
from types import TracebackType
from typing import Any, Dict, List, Optional, Tuple

from relive_recorder.failure import frames
from relive_recorder.failure.representation import Representer, type_name

__all__ = ["describe", "fingerprint", "text_of", "traceback_of"]

LINKS = 10
_get = {
    name: BaseException.__dict__[name].__get__
    for name in ("__cause__", "__context__", "__suppress_context__", "__traceback__", "args")
}
_HEAP_TYPE = 1 << 9  # Py_TPFLAGS_HEAPTYPE: a class that somebody wrote, not one that is built in
_flags = type.__dict__["__flags__"].__get__
_TOLD = (str, int, float, bool, bytes, type(None))


def traceback_of(error: BaseException) -> Optional[TracebackType]:
    """Its traceback, whatever its class says of it."""
    found = _get["__traceback__"](error)
    return found if isinstance(found, TracebackType) else None


def text_of(error: BaseException, representer: Representer) -> str:
    """Its message as Python would give it, where that takes no code of its class; else what it was made of."""
    args = _get["args"](error)
    kind = type(error)
    mro = type.__dict__["__mro__"].__get__(kind)
    teller = next(base for base in mro if "__str__" in type.__dict__["__dict__"].__get__(base))
    filename = OSError.__dict__["filename"].__get__(error) if OSError in mro else None
    if not _flags(teller) & _HEAP_TYPE and all(type(one) in _TOLD for one in (*args, filename)):
        return representer.message(teller.__str__(error))
    if len(args) == 1:
        return representer.message(args[0]) if type(args[0]) is str else representer.named("", args[0])
    return representer.named("", args if args else error)


def fingerprint(error: BaseException) -> Tuple[str, Optional[frames.Step]]:
    """(16 hex digits, the innermost frame of the service's own code, else the innermost one).

    Equal for the same type raised on the same way: names of files and functions of the service's own code, repetitions once
    (recursion), and the line only of that one frame. Libraries' frames count only where there are no others: how many of them an
    exception has passed depends on who sees it, a handler inside or the server outside.
    """
    steps, _ = frames.walk(traceback_of(error))
    place = next((step for step in reversed(steps) if frames.is_own(step[0])), steps[-1] if steps else None)
    parts = [type_name(type(error))]
    for frame, line in [step for step in steps if frames.is_own(step[0])] or steps:
        part = f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_code.co_name}"
        part += f":{line}" if place is not None and frame is place[0] else ""
        if part != parts[-1]:
            parts.append(part)
    digest = hashlib.blake2b("\n".join(parts).encode("utf-8", "replace"), digest_size=8)
    return digest.hexdigest(), place


def describe(error: BaseException, representer: Representer, cut: List[str]) -> List[Dict[str, Any]]:
    """The chain as it stands in the error package; what is left out is told in ``cut``."""
    found: List[Dict[str, Any]] = []
    files: Dict[str, List[str]] = {}
    seen = set()
    waiting: List[Tuple[BaseException, Optional[str]]] = [(error, None)]
    while waiting:
        one, relation = waiting.pop(0)
        if id(one) in seen:
            continue
        if len(found) == LINKS:
            cut.append(f"exceptions of the chain beyond {LINKS}")
            break
        seen.add(id(one))
        steps, more = frames.walk(traceback_of(one))
        if more:
            cut.append(f"{more} frames in the middle of {type_name(type(one))}")
        # Innermost first: should the time run out, it is spent where it matters most.
        described = [frames.describe(step, representer, files) for step in reversed(steps)]
        found.append(
            {
                "type": _whole_name(type(one)),
                "text": text_of(one, representer),
                "relation": relation,
                "frames": described[::-1],
            }
        )
        waiting += _related(one)
    # Not before: only now is every secret known that a local variable holds, and that may stand in the source.
    for link in found:
        for frame in link["frames"]:
            if frame["source"] is not None:
                frame["source"]["lines"] = [representer.message(line) for line in frame["source"]["lines"]]
    return found


def _whole_name(kind: type) -> str:
    name = type_name(kind)
    return name if "." in name else f"builtins.{name}"


def _related(error: BaseException) -> List[Tuple[BaseException, str]]:
    found: List[Tuple[BaseException, str]] = []
    cause, context = _get["__cause__"](error), _get["__context__"](error)
    if isinstance(cause, BaseException):
        found.append((cause, "cause"))
    elif isinstance(context, BaseException) and not _get["__suppress_context__"](error):
        found.append((context, "context"))
    group = getattr(builtins, "BaseExceptionGroup", None)  # from 3.11 on
    if group is not None and group in type.__dict__["__mro__"].__get__(type(error)):
        parts = group.__dict__["exceptions"].__get__(error)
        found += [(part, "group") for part in parts if isinstance(part, BaseException)]
    return found
