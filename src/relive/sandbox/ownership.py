"""What ties a branch to the process that has it, so that no branch of a replay outlives the replay, however that ends.

Two things end with a process that is killed, at once and for good: a claim on the branch's directory (``unfinished``), by which
the next command sees that nobody has it any more, and a line to process 1, by which the branch itself ends in that moment
(``--owner`` in native/init.c). Both work between PID namespaces, where a pid would say nothing.
"""

from __future__ import annotations

import contextlib
import socket
from pathlib import Path

__all__ = ["Ownership"]

_MAY_LIVE_ON = b"d"


class Ownership:
    """The owner's side. Its descriptors are closed on exec, and nobody who is forked may keep them.

    Attributes:
        directory: of the branch.
        line: process 1's end of the line; it is closed with this object.
    """

    def __init__(self, place: contextlib.AbstractContextManager[Path]) -> None:
        """Own the branch of the directory that ``place`` gives, which stays claimed until ``close``. Raises what ``place`` does."""
        with contextlib.ExitStack() as stack:
            self.directory = stack.enter_context(place)
            self._ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            stack.enter_context(self._ours)
            stack.enter_context(theirs)
            self.line = theirs.fileno()
            self._held = stack.pop_all()

    def let_live(self) -> None:
        """The branch goes on without an owner. What says so in its state must have been written before."""
        with contextlib.suppress(OSError):  # its process 1 has ended
            self._ours.send(_MAY_LIVE_ON)
        self.close()

    def close(self) -> None:
        """Let go: the branch ends, if it runs. Doing it twice is no error."""
        self._held.close()
