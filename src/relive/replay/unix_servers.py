"""Servers behind UNIX domain sockets that a service in a branch wanted, and that are not there.

A branch has none of the host's sockets, and no packet shows that one was wanted. So each connect(2) of the branch's processes is
looked at before it goes on (``kernel.connects``), in a thread of this process, with which the branch ends.
"""

from __future__ import annotations

import contextlib
import os
import queue
import select
import threading
from collections import Counter

from relive.kernel import connects
from relive.kernel.namespaces import Namespace, enter
from relive.model.outcome import Stranger

__all__ = ["UnixServers"]

_MOST = 100  # names that are told
_KNOWN_MOST = 10_000
# The C library asks a cache of names before it looks itself. At the others nothing is ever answered.
_DONE_WITHOUT = frozenset(
    {
        "/var/run/nscd/socket",
        "/run/nscd/socket",
        "/dev/log",
        "/run/systemd/journal/dev-log",
        "/run/systemd/journal/socket",
        "/run/systemd/journal/stdout",
        "/run/systemd/notify",
    }
)


class UnixServers:
    """Watches one branch from before its restore.

    ``close`` it when the branch has been stopped: what asks then is refused (ENOSYS).
    """

    def __init__(self) -> None:
        self._is_watching = False
        self._missing: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._serving = threading.Lock()  # held while one is answered
        self._ending, self._end = os.pipe2(os.O_CLOEXEC)
        self._given: queue.SimpleQueue[int | None] = queue.SimpleQueue()
        # Begun here: a thread that restores starts none, and one under the filter would wait for itself.
        self._thread = threading.Thread(target=self._serve, name="unix-servers", daemon=True)
        self._thread.start()

    def watch(self, listener: int) -> None:
        """Begin to answer; ``listener`` becomes this object's. Called in the thread that restores, before anything else asks."""
        self._is_watching = True
        self._given.put(listener)

    def begin_anew(self) -> None:
        """Forget what was seen: the branch was put back, and none of its threads is under way."""
        with self._serving:
            self._missing.clear()

    def unreached(self) -> list[Stranger]:
        """What was not there so far, the most wanted first, at most a hundred; what was there later has been waited for."""
        with self._lock:
            return [Stranger(to=name, times=times) for name, times in self._missing.most_common(_MOST)]

    def troubles(self) -> list[str]:
        """Why nothing can be told, in a sentence; empty where it can."""
        if self._is_watching:
            return []
        return [
            "servers behind UNIX domain sockets that are missing in the branch were not seen (docs/verdicts.md)"
        ]

    def close(self) -> None:
        """End. May be called again."""
        if self._end >= 0:
            os.close(self._end)
            self._end = -1
            self._given.put(None)
            self._thread.join()
            os.close(self._ending)

    def _serve(self) -> None:
        listener = self._given.get()
        if listener is None:
            return
        try:
            with contextlib.suppress(OSError):
                while self._ending not in select.select([listener, self._ending], [], [])[0]:
                    with self._serving:
                        self._serve_one(listener)
        finally:
            os.close(listener)

    def _serve_one(self, listener: int) -> None:
        connect = connects.receive(listener)
        if connect is not None:
            try:
                self._note(connect)
            finally:
                connects.answer(listener, connect)

    def _note(self, connect: connects.Connect) -> None:
        try:
            enter(connect.thread, Namespace.NETWORK)
            found = connects.look(connect)
        except OSError:
            return
        if found is None or found[0] in _DONE_WITHOUT:
            return
        name, who = found
        with self._lock:
            if who is connects.NameOwner.SERVED:
                self._missing.pop(name, None)
            elif who is connects.NameOwner.MISSING and (
                name in self._missing or len(self._missing) < _KNOWN_MOST
            ):
                self._missing[name] += 1
