"""A TCP proxy that cuts connections: what a bad line does to a transfer."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class FlakyLine:
    """Forwards to a port, and cuts each of the first ``cuts`` connections when ``after`` bytes went through it.

    Without ``cuts`` the line is dead for good when so many bytes went through all connections together.

    Attributes:
        port: where it listens.
        connections: how many there were.
    """

    def __init__(self, target: int, *, after: int, cuts: int | None) -> None:
        self._target, self._after, self._cuts = target, after, cuts
        self._lock = threading.Lock()
        self._left_of_all = [float(after)]
        self.connections = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]

    @classmethod
    @contextmanager
    def to(cls, target: int, *, after: int, cuts: int | None = None) -> Iterator[FlakyLine]:
        line = cls(target, after=after, cuts=cuts)
        accepting = threading.Thread(target=line._accept, daemon=True)
        accepting.start()
        try:
            yield line
        finally:
            line._listener.shutdown(socket.SHUT_RDWR)
            line._listener.close()
            accepting.join()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            far = socket.create_connection(("127.0.0.1", self._target))
            with self._lock:
                self.connections += 1
                left = self._left_of_next()
            for source, target in ((near, far), (far, near)):
                threading.Thread(target=self._forward, args=(source, target, left), daemon=True).start()

    def _left_of_next(self) -> list[float]:
        if self._cuts is None:
            return self._left_of_all
        return [self._after if self.connections <= self._cuts else float("inf")]

    def _forward(self, source: socket.socket, target: socket.socket, left: list[float]) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                with self._lock:
                    left[0] -= len(data)
                    is_cut = left[0] < 0
                if is_cut:
                    break
                target.sendall(data)
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()
