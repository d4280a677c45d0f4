"""The recorder's line to ``relive-keeper`` (``native/keeper.c``), which holds the connections so that they outlive the recorder.

Either of the two may be killed: the keeper has all that the next recorder needs, and a recorder whose keeper has gone starts
another and tells it everything anew. Only when both are killed at one moment connections end.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import signal
import socket
import struct
import subprocess
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from relive.kernel.unixpath import near

__all__ = ["TEXT_MOST", "Keeper", "Kept", "copies_of"]

TEXT_MOST = 1024  # of keeper.c
_HEAD = struct.Struct("=cQ")
_DESCRIPTORS = 2
_ANSWER_SECONDS = 5.0
_SHUT_SECONDS = 1.0
_PAUSE = 0.1  # [s] until another keeper is started
_PAUSE_IN_TROUBLE = 10.0  # [s] until it is tried again where that failed
_PEER = struct.Struct("=iII")  # struct ucred
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
        all_kept: asked, when another keeper has been started, for all that it is to have. One at a time, as the keeper hears of
            them: what is let go meanwhile is not to come any more. Descriptors are closed then.
        on_trouble: told one sentence.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        program: Path,
        path: Path,
        capsule: int,
        all_kept: Callable[[], Iterator[Kept]],
        on_trouble: Callable[[str], None],
    ) -> None:
        self._loop = loop
        self._program, self._path, self._capsule = program, path, capsule
        self._all_kept = all_kept
        self._on_trouble = on_trouble
        self._line: socket.socket | None = None
        self._waiting: deque[tuple[bytes, list[int]]] = deque()  # with descriptors of our own
        self._told_anew: Iterator[Kept] = iter(())
        self._is_troubled = False
        self._child: subprocess.Popen[bytes] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def meet(self) -> list[Kept]:
        """Find the keeper of an earlier recorder, or start one. Returns what the earlier recorder has left."""
        try:
            return self._connect(is_found=True)
        except OSError:
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

    def _connect(self, *, is_found: bool = False) -> list[Kept]:
        line = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        found: list[Kept] = []
        try:
            line.settimeout(_ANSWER_SECONDS)
            line.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SENT_BUFFER)
            with near(self._path) as name:
                line.connect(name)
            while True:
                said, descriptors, _, _ = socket.recv_fds(
                    line, _HEAD.size + TEXT_MOST, _DESCRIPTORS, socket.MSG_CMSG_CLOEXEC
                )
                if len(said) < _HEAD.size:
                    raise ConnectionResetError("the keeper has ended")
                letter, number = _HEAD.unpack_from(said)
                if letter == b"e":
                    break
                found.append(Kept(number, list(descriptors), said[_HEAD.size :]))
        except OSError as error:
            if is_found and isinstance(error, TimeoutError):
                _kill_peer(line)
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
            self._is_troubled = False
        except OSError as error:
            if not self._is_troubled:
                self._on_trouble(f"connections end with this recorder, since nobody keeps them: {error}")
            self._is_troubled = True
            if self._child is not None:
                self._child.kill()  # one that does not answer holds nothing yet
            self._timer = self._loop.call_later(_PAUSE_IN_TROUBLE, self._begin_again)

    def _heard(self) -> None:
        """It never says anything but by its end."""
        self._drop()
        self._timer = self._loop.call_later(_PAUSE, self._begin_again)

    def _begin_again(self) -> None:
        if select.select([self._capsule], [], [], 0)[0]:
            return  # it ended with the capsule, as the next one would
        self._begin()
        if self._line is not None:
            self._told_anew = self._all_kept()
            self._loop.add_writer(self._line.fileno(), self._say_waiting)
            self._say_waiting()

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
        copies = copies_of(descriptors)
        if copies is not None:
            self._waiting.append((said, copies))

    def _say_waiting(self) -> None:
        assert self._line is not None
        while self._waiting or self._draw():
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

    def _draw(self) -> bool:
        kept = next(self._told_anew, None)
        if kept is not None:
            self._waiting.append((_HEAD.pack(b"k", kept.number) + kept.text, kept.descriptors))
        return kept is not None

    def _drop(self) -> None:
        if self._line is not None:
            self._loop.remove_reader(self._line.fileno())
            self._loop.remove_writer(self._line.fileno())
            self._line.close()
            self._line = None
        for _, descriptors in self._waiting:
            _close_all(descriptors)
        self._waiting.clear()
        self._told_anew = iter(())
        if self._child is not None:
            self._child.poll()  # nobody else takes its status


def copies_of(descriptors: Iterable[int]) -> list[int] | None:
    """Others for the same files. None: the limit of descriptors is reached."""
    copies: list[int] = []
    try:
        for one in descriptors:
            copies.append(os.dup(one))  # one by one: those before one that fails are to be closed
    except OSError:
        _close_all(copies)
        return None
    return copies


def _kill_peer(line: socket.socket) -> None:
    """It holds connections that nobody could reach any more once another keeper has its name: their peers would wait for ever."""
    pid, _, _ = _PEER.unpack(line.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))
    with contextlib.suppress(OSError):
        process = os.pidfd_open(pid)
        try:
            if Path(f"/proc/{pid}/comm").read_text() == "relive-keeper\n":
                signal.pidfd_send_signal(process, signal.SIGKILL)
        finally:
            os.close(process)


def _close_all(descriptors: Iterable[int]) -> None:
    for one in descriptors:
        os.close(one)
