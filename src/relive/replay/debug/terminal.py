"""The line to a debugger inside a branch: text comes, and when the debugger wants a line, a line is sent.

The other end, and the protocol, is ``failure/debugger.py`` of the recorder.
"""

from __future__ import annotations

import codecs
import contextlib
import socket
import time
from collections.abc import Callable
from pathlib import Path

from relive.errors import DebuggerSilent
from relive.kernel.unixpath import near

__all__ = ["DebugLine"]

_ASK = b"\x1e"
_READ = 1 << 16  # [bytes]
# [bytes] between two prompts; what runs in a branch may be hostile, and this is memory of the host's.
_MOST = 16 << 20
_POLL = 0.005  # [s]
_ASK_AGAIN = 0.2  # [s]


class DebugLine:
    """One conversation. For one thread.

    Args:
        goes_on: asked while nothing comes; when it says no, the conversation has ended.
    """

    def __init__(self, connection: socket.socket, goes_on: Callable[[], bool]) -> None:
        self._connection = connection
        self._goes_on = goes_on
        connection.settimeout(_ASK_AGAIN)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._rest = b""

    @classmethod
    def open(cls, path: Path, limit: float, goes_on: Callable[[], bool]) -> DebugLine:
        """Connect to the debugger's socket as soon as it is there.

        Args:
            limit: seconds; goes_on: it may still come, and as for the class.

        Raises:
            DebuggerSilent: it did not come.
        """
        until = time.monotonic() + limit
        while time.monotonic() < until and goes_on():
            connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
            try:
                with near(path) as name:
                    connection.connect(name)
            except (FileNotFoundError, ConnectionRefusedError):
                connection.close()
                time.sleep(_POLL)
            except BaseException:
                connection.close()
                raise
            else:
                return cls(connection, goes_on)
        raise DebuggerSilent(
            "no debugger opened in the branch",
            cause="the thread that was to open it did not come to it",
            remedy="`relive debug --keep` keeps the branch, `relive logs BRANCH` shows what it said",
        )

    def read_text(self) -> tuple[str, bool]:
        """Text until the debugger wants a line, and True; the rest of the text and False when it has ended.

        Raises:
            DebuggerSilent: it says more than anybody reads.
        """
        pieces, size = [self._rest], 0
        while _ASK not in pieces[-1]:
            try:
                data = self._connection.recv(_READ)
            except TimeoutError:
                if self._goes_on():
                    continue
                data = b""
            except ConnectionResetError:
                data = b""
            if not data:
                self._rest = b""
                return self._decoder.decode(b"".join(pieces), final=True), False
            pieces.append(data)
            size += len(data)
            if size > _MOST:
                raise DebuggerSilent(
                    "the debugger said too much",
                    cause=f"more than {_MOST >> 20} MiB without asking for a command",
                    remedy="ask for less, such as a slice",
                )
        whole = b"".join(pieces)
        text, _, self._rest = whole.partition(_ASK)
        return self._decoder.decode(text), True

    def send_line(self, line: str) -> None:
        """Send one line; that the debugger has ended is seen at the next ``read_text``."""
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self._connection.sendall(line.rstrip("\n").encode("utf-8", "replace") + b"\n")

    def close(self) -> None:
        """End the conversation; the debugger ends too, and its thread goes on. May be called again."""
        self._connection.close()
