"""A connection on which nobody has said anything: its first bytes decide who carries it. They are looked at, and not taken."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

from relive.proxies.egress._carrier import Opening, watch_over
from relive.proxies.egress._tls_detection import may_be_encrypted
from relive.recording.dialogues import Way

__all__ = ["Undecided"]

_LOOKED_AT = 64 * 1024  # [bytes]


class Undecided:
    """A ``GateKeeper``. Lives in the event loop.

    Args:
        inner: the end in the capsule; outer: the real one. They are ``decided``'s once it is called.
        decided: told once, with this, whether the connection may be encrypted.
        told_in: segment of the recording in which the connection was opened.
    """

    has_said_all = False  # what the service says, or its end, is yet to be read

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        opening: Opening,
        inner: socket.socket,
        outer: socket.socket,
        decided: Callable[[Undecided, bool], None],
        *,
        told_in: int,
        frozen: bool,
    ) -> None:
        self.opening, self.inner, self.outer, self.told_in = opening, inner, outer, told_in
        self._loop = loop
        self._decided: Callable[[Undecided, bool], None] | None = decided
        watch_over(outer)
        loop.add_reader(inner.fileno(), self._look, Way.UP)
        if not frozen:
            self.thaw()

    def freeze(self) -> None:
        """What is said to the service waits in the kernel."""
        self._loop.remove_reader(self.outer.fileno())

    def thaw(self) -> None:
        """Go on."""
        self._loop.add_reader(self.outer.fileno(), self._look, Way.DOWN)

    def shut(self) -> None:
        """The recorder ends, and whoever carries it says so."""
        self._decide(may_be=False)

    def _look(self, way: Way) -> None:
        if way is Way.DOWN:
            self._decide(may_be=False)
            return
        try:
            first = self.inner.recv(_LOOKED_AT, socket.MSG_PEEK)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            first = b""
        self._decide(may_be=bool(first) and may_be_encrypted(first))

    def _decide(self, *, may_be: bool) -> None:
        if self._decided is not None:
            decided, self._decided = self._decided, None
            self._loop.remove_reader(self.inner.fileno())
            self._loop.remove_reader(self.outer.fileno())
            decided(self, may_be)
