"""``python -m relive.forkserver SOCKET READY``: be the fork server of that socket.

When it listens it writes a byte to descriptor ``READY``. It belongs to nobody: the process that is started ends at once, and leaves
a child in a session of its own. Where another is there already, or about to be, it ends.
"""

from __future__ import annotations

import contextlib
import fcntl
import gc
import os
import resource
import socket
import sys
import time
from pathlib import Path

from relive.forkserver.attributes import leave_control_groups
from relive.forkserver.become import reset_signals, run_child
from relive.forkserver.ending import run_and_end
from relive.forkserver.entries import preload
from relive.forkserver.modules import ModuleFiles
from relive.forkserver.server import ForkServer

__all__ = ["main"]

_IDLE_LIMIT = 180.0  # [s]
_WAITING = 512  # that ask at one time; the kernel's own limit is mostly higher


def main() -> int:
    """Serve; a child becomes what was asked for, and does not return."""
    began_ns = time.time_ns()
    gc.disable()  # nothing is garbage while modules are imported
    place, ready = Path(sys.argv[1]), int(sys.argv[2])
    if os.fork() != 0:
        os._exit(0)
    os.setsid()
    os.chdir("/")
    os.umask(0o077)
    reset_signals()
    leave_control_groups()  # those of who happens to be the first to ask; its children have their own
    # Two descriptors for each child; a child has the limits of who asks.
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    claim = place.with_suffix(".lock")
    lock = os.open(claim, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return 0
    if os.fstat(lock).st_nlink == 0:  # of one that has just ended
        return 0
    preload()
    gc.collect()
    gc.freeze()  # no collection in a child looks at them, and so writes to their pages
    files = ModuleFiles.loaded(since_ns=began_ns)

    def retire() -> None:
        place.unlink(missing_ok=True)
        claim.unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # another's is in there
            place.parent.rmdir()
        os.close(lock)

    with _listening(place) as listener:
        with contextlib.suppress(BrokenPipeError):  # who started it does not wait for it
            os.write(ready, b"\0")
        os.close(ready)
        connection = ForkServer(listener, files.are_current, _IDLE_LIMIT, retire).serve()
    if connection is not None:
        run_and_end(lambda: run_child(connection))
    return 0


def _listening(place: Path) -> socket.socket:
    """Under its name it is there only from when it listens."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    made = place.with_suffix(f".{os.getpid()}")
    with contextlib.suppress(FileNotFoundError):
        made.unlink()
    listener.bind(str(made))
    listener.listen(_WAITING)
    made.rename(place)
    return listener


if __name__ == "__main__":
    sys.exit(main())
