"""The line between the page daemon and process 1 of its branch; the words are specified in native/init.c.

Whichever side ends, the other sees it. While the daemon's side has not said that all memory is there, its end, or its
hanging up, ends every process of the branch before the last userfaultfd is closed.
"""

from __future__ import annotations

import array
import contextlib
import select
import socket
from collections.abc import Sequence

__all__ = ["Lifeline"]

_RIGHTS_MOST = 250  # one message carries at most SCM_MAX_FD = 253 descriptors


class Lifeline:
    """The daemon's end, a SOCK_SEQPACKET socket."""

    def __init__(self, line: socket.socket) -> None:
        self._line = line

    def fileno(self) -> int:
        """To be waited for: it becomes readable when process 1 is gone, or has let the line go."""
        return self._line.fileno()

    def hold(self, descriptors: Sequence[int]) -> None:
        """Have process 1 keep duplicates open. They are safe on return: what lies in a socket counts as open.

        Raises:
            ConnectionError: process 1 is gone.
        """
        for start in range(0, len(descriptors), _RIGHTS_MOST):
            part = array.array("i", descriptors[start : start + _RIGHTS_MOST])
            self._line.sendmsg([b"h"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, part)])

    def release_branch(self) -> None:
        """All memory is there: the branch needs nobody any more. Returns when process 1 has heard it, or is gone."""
        with contextlib.suppress(OSError):
            self._line.send(b"d")
        self._wait_for_end()

    def hang_up(self) -> None:
        """The memory will not come. Returns when process 1 is gone, and with it everything of the branch."""
        with contextlib.suppress(OSError):
            # Only this direction, so that its end can still be seen.
            self._line.shutdown(socket.SHUT_WR)
        self._wait_for_end()

    def _wait_for_end(self) -> None:
        poller = select.poll()
        poller.register(self._line, select.POLLRDHUP)
        poller.poll()
