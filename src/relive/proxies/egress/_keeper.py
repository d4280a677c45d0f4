"""The recorder's line to ``relive-keeper`` (``native/keeper.c``), which holds the connections so that they outlive the recorder.

Either of the two may be killed: the keeper has all that the next recorder needs, and a recorder whose keeper has gone starts
another and tells it everything anew. Only when both are killed at one moment connections end.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import socket
import struct
import subprocess
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from relive.kernel.unixpath import near

__all__ = ["TEXT_MOST", "Keeper", "Kept"]

TEXT_MOST = 1024  # of keeper.c
_HEAD = struct.Struct("=cQ")
_DESCRIPTORS_MOST = 2
_ANSWER_SECONDS = 5.0
_SHUT_SECONDS = 1.0
_PAUSE = 0.1  # [s] until another keeper is started
_SENT_BUFFER = 1 << 20  # [bytes]


class Kept(NamedTuple):
    """What a keeper has. The descriptors belong to who has this."""

    number: int
    descriptors: list[int]
    text: bytes


class Keeper:
    """Lives in the event loop. Nothing raises because of the keeper: without one connections end with the recorder, which is said.

    Args:
        program: ``relive-keeper``.
        path: of the socket at which it is met.
        capsule: descriptor (pidfd_open) of the process with which it ends.
        all_kept: asked, when another keeper has been started, for all that it is to have; descriptors are closed then.
        on_trouble: told one sentence.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        program: Path,
        path: Path,
        capsule: int,
        all_kept: Callable[[], Sequence[Kept]],
        on_trouble: Callable[[str], None],
    ) -> None:
        self._loop = loop
        self._program, self._path, self._capsule = program, path, capsule
        self._all_kept = all_kept
        self._on_trouble = on_trouble
        self._line: socket.socket | None = None
        self._waiting: deque[tuple[bytes, list[int]]] = deque()  # with descriptors of our own
        self._child: subprocess.Popen[bytes] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def meet(self) -> list[Kept]:
        """Find the keeper of an earlier recorder, or start one. Returns what the earlier recorder has left."""
        with contextlib.suppress(OSError):
            return self._connect()
        self._begin()
        return []

    def hold(self, number: int, descriptors: Sequence[int], text: bytes) -> None:
        """Hold descriptors, which stay the caller's as well; another time with the same number replaces what was held."""
        self._say(_HEAD.pack(b"k", number) + text, descriptors)

    def let_go(self, number: int) -> None:
        """Close its descriptors there."""
        self._say(_HEAD.pack(b"d", number))

    def end(self) -> None:
        """The keeper ends, and all that only it still has."""
        if self._timer is not None:
            self._timer.cancel()
        line = self._line
        if line is None:
            return
        self._loop.remove_reader(line.fileno())
        self._loop.remove_writer(line.fileno())
        with contextlib.suppress(OSError):
            line.settimeout(_SHUT_SECONDS)
            for said, descriptors in self._waiting:
                socket.send_fds(line, [said], descriptors)
            line.send(_HEAD.pack(b"q", 0))
            line.recv(1)  # it has ended
        self._drop()
        self._path.unlink(missing_ok=True)

    def _connect(self) -> list[Kept]:
        line = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        found: list[Kept] = []
        try:
            line.settimeout(_ANSWER_SECONDS)
            line.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SENT_BUFFER)
            with near(self._path) as name:
                line.connect(name)
            while True:
                said, descriptors, _, _ = socket.recv_fds(
                    line, _HEAD.size + TEXT_MOST, _DESCRIPTORS_MOST, socket.MSG_CMSG_CLOEXEC
                )
                if len(said) < _HEAD.size:
                    raise ConnectionResetError("the keeper has ended")
                letter, number = _HEAD.unpack_from(said)
                if letter == b"e":
                    break
                found.append(Kept(number, list(descriptors), said[_HEAD.size :]))
        except OSError:
            line.close()
            _close_all(one for kept in found for one in kept.descriptors)
            raise
        line.setblocking(False)
        self._line = line
        self._loop.add_reader(line.fileno(), self._heard)
        return found

    def _begin(self) -> None:
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
                self._path.unlink(missing_ok=True)
                before = os.umask(0o177)
                try:
                    with near(self._path) as name:
                        listener.bind(name)
                finally:
                    os.umask(before)
                listener.listen(1)
                descriptors = listener.fileno(), self._capsule
                self._child = subprocess.Popen(
                    [self._program, *map(str, descriptors)],
                    pass_fds=descriptors,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,
                )
            self._connect()
        except OSError as error:
            self._on_trouble(f"connections end with this recorder, since nobody keeps them: {error}")

    def _heard(self) -> None:
        """It never says anything but by its end."""
        self._drop()
        self._timer = self._loop.call_later(_PAUSE, self._begin_again)

    def _begin_again(self) -> None:
        if select.select([self._capsule], [], [], 0)[0]:
            return  # it ended with the capsule, as the next one would
        self._begin()
        for kept in self._all_kept():
            self.hold(*kept)
            _close_all(kept.descriptors)

    def _say(self, said: bytes, descriptors: Sequence[int] = ()) -> None:
        if self._line is None:
            return
        if not self._waiting:
            try:
                socket.send_fds(self._line, [said], descriptors)
            except BlockingIOError:
                self._loop.add_writer(self._line.fileno(), self._say_waiting)
            except OSError:
                return  # it has gone, which is read next
            else:
                return
        with contextlib.suppress(OSError):  # no descriptor is left
            self._waiting.append((said, [os.dup(one) for one in descriptors]))

    def _say_waiting(self) -> None:
        assert self._line is not None
        while self._waiting:
            said, descriptors = self._waiting[0]
            try:
                socket.send_fds(self._line, [said], descriptors)
            except BlockingIOError:
                return
            except OSError:
                break
            _close_all(descriptors)
            self._waiting.popleft()
        self._loop.remove_writer(self._line.fileno())

    def _drop(self) -> None:
        if self._line is not None:
            self._loop.remove_reader(self._line.fileno())
            self._loop.remove_writer(self._line.fileno())
            self._line.close()
            self._line = None
        for _, descriptors in self._waiting:
            _close_all(descriptors)
        self._waiting.clear()
        if self._child is not None:
            self._child.poll()  # nobody else takes its status


def _close_all(descriptors: Iterable[int]) -> None:
    for one in descriptors:
        os.close(one)
