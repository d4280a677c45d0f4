"""Files of configuration size that the service reads.

Event ``file-read``: ``asked`` {"path"}, ``answer`` {"bytes", "blake2b"} of the file as it was when it was opened, or ``error``
{"type", "errno"}; its data is the content, scrubbed. Only regular files up to 256 KiB that are opened for reading, by code that
is not Python's own library, and none of Python's code or packages; the same version of a file once for each request. The file
is in the commit: in a replay it is really read, and recorded for the comparison.

Python tells of every file that is opened (PEP 578), so nothing is replaced: ``open`` stays what it is. The content is read
a second time, from memory: the service is about to read it itself.
"""

import os
import stat
import sys
import threading
from typing import Any, Dict, Tuple

from relive_recorder import bodies, context, quick
from relive_recorder.guard import attempt
from relive_recorder.kinds.callers import is_service
from relive_recorder.recorder import RECORD, REPLAY, recorder

__all__ = ["install"]

_LARGEST = 256 << 10  # [bytes]
_MOST = 1000  # files of one request
_NOT_DATA = (".py", ".pyc", ".so", ".pth", ".dist-info/METADATA")
_NOT_FILES = ("/proc/", "/sys/", "/dev/", "/run/relive/")
_PASSING = frozenset(("pathlib", "pathlib._local", "pathlib._abc", "io", "codecs"))
_busy = threading.local()


def install() -> None:
    """Listen. It cannot be undone (PEP 578), so it looks at the mode each time."""
    if quick.module is None or not quick.module.listen(_heard):
        sys.addaudithook(_heard)


def _heard(event: str, given: Tuple[Any, ...]) -> None:
    if event != "open":
        return
    path, _, flags = given
    if type(path) is not str or type(flags) is not int or flags & os.O_ACCMODE != os.O_RDONLY:
        return
    if path.endswith(_NOT_DATA) or path.startswith(_NOT_FILES):
        return
    if recorder.mode() in (RECORD, REPLAY) and not getattr(_busy, "now", False):
        _busy.now = True
        try:
            attempt(_note, path, flags)
        finally:
            _busy.now = False


def _note(path: str, flags: int) -> None:
    try:
        caller = sys._getframe(3)
    except ValueError:  # opened by the interpreter itself: no function of the service is there
        return
    if not is_service(caller, _PASSING) or flags & (os.O_DIRECTORY | os.O_PATH) or _is_pythons(path):
        return
    if path.startswith(recorder.options.rings):  # our own
        return
    try:
        facts = os.stat(path)
    except OSError as error:
        described = {"type": f"builtins.{type(error).__name__}", "errno": error.errno}
        recorder.emit("file-read", {"asked": _asked(path), "error": described})
        return
    seen = context.here().store.setdefault("file-read", set())
    version = (path, facts.st_mtime_ns, facts.st_size)
    if not stat.S_ISREG(facts.st_mode) or facts.st_size > _LARGEST or version in seen or len(seen) >= _MOST:
        return
    seen.add(version)
    content = _read(path)
    if content is None:
        return
    from _blake2 import blake2b

    more, data = bodies.for_event(content)
    answer = {"bytes": len(content), "blake2b": blake2b(content, digest_size=16).hexdigest()}
    recorder.emit("file-read", {"asked": _asked(path), "answer": answer, **more}, data)


def _asked(path: str) -> Dict[str, str]:
    return {"path": recorder.scrubber.text(os.path.abspath(path))}


def _read(path: str) -> Any:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return None  # the service will be told so itself
    try:
        return os.pread(fd, _LARGEST, 0)
    finally:
        os.close(fd)


def _is_pythons(path: str) -> bool:
    return (
        path.startswith((sys.prefix + "/lib/python", sys.base_prefix + "/lib/python")) or "-packages/" in path
    )
