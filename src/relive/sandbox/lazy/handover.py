"""How ``criu restore --lazy-pages`` hands userfaultfds over: a stream socket named ``lazy-pages.socket`` in its work directory.

For each process CRIU sends its pid (i32, as the commit has it) and then, for one that lives, one byte with its userfaultfd
(SCM_RIGHTS); a zombie's pid is negative, and nothing follows. When every process has its memory mapped, it sends
0x52535446 and goes on to let them run (criu/uffd.c).
"""

from __future__ import annotations

import os
import socket
import struct
from pathlib import Path

__all__ = ["Handover", "HandoverBroken"]

NAME = "lazy-pages.socket"
_PID = struct.Struct("<i")
_FINISHED = 0x52535446
_WITHIN = 10.0  # [s] between a pid and its userfaultfd


class HandoverBroken(Exception):
    """CRIU ended before it had handed everything over, which ``restore`` tells in its own words."""


class Handover:
    """Waits for CRIU, then takes what it hands over.

    Attributes:
        is_finished: all of them are there.
    """

    def __init__(self, directory: Path) -> None:
        """Listen in CRIU's work directory."""
        self.is_finished = False
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        # A path may be longer than a socket's name can be (108 bytes); this one never is.
        here = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            self._socket.bind(f"/proc/self/fd/{here}/{NAME}")
        finally:
            os.close(here)
        self._socket.listen(1)
        self._is_connected = False

    def __enter__(self) -> Handover:
        return self

    def __exit__(self, *_error: object) -> None:
        self._socket.close()

    def fileno(self) -> int:
        """To be waited for: ``receive`` can go on when it is readable."""
        return self._socket.fileno()

    def receive(self) -> tuple[int, int] | None:
        """The next (pid, userfaultfd), or None if this was something else.

        Raises:
            HandoverBroken: CRIU is gone.
        """
        if not self._is_connected:
            connection, _ = self._socket.accept()
            self._socket.close()
            self._socket, self._is_connected = connection, True
            self._socket.settimeout(_WITHIN)
            return None
        try:
            return self._receive()
        except (ConnectionError, TimeoutError):
            raise HandoverBroken from None

    def _receive(self) -> tuple[int, int] | None:
        word = self._socket.recv(_PID.size, socket.MSG_WAITALL)
        if len(word) != _PID.size:
            raise HandoverBroken
        (pid,) = _PID.unpack(word)
        if pid == _FINISHED:
            self.is_finished = True
            self._socket.close()
            return None
        if pid < 0:
            return None
        _, descriptors, _, _ = socket.recv_fds(self._socket, 1, 1)
        if len(descriptors) != 1:
            raise HandoverBroken
        return pid, descriptors[0]
