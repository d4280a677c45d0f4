"""Passing on what a service in a capsule tells systemd (sd_notify(3)).

systemd takes messages of a unit's main process, which is ``relive run``, and knows processes by their numbers on the host. So the
service has a socket of Relive's in its NOTIFY_SOCKET, and what arrives there is sent on from here, in its order, with the
descriptors that came along (FDSTORE=1, BARRIER=1). One word is kept back: MAINPID, which is a number inside the capsule; the main
process of the unit stays ``relive run``, and that of the service is the one it started.
"""

from __future__ import annotations

import array
import contextlib
import os
import socket
import struct
import threading
from enum import StrEnum
from pathlib import Path

from relive.kernel.unixpath import near
from relive.model.capsule import RUN_DIRECTORY

__all__ = ["INNER_SOCKET", "NotifyAccess", "NotifyRelay", "passed_on"]

_NAME = "notify"
INNER_SOCKET = RUN_DIRECTORY / "io" / _NAME  # the directory of its output is there inside
_MESSAGE_MOST = 1 << 16  # [bytes] systemd takes a page
_RIGHTS_MOST = 253  # SCM_MAX_FD
_END_LIMIT = 2.0  # [s]
_CREDENTIALS = struct.Struct("iII")


class NotifyAccess(StrEnum):
    """Whose messages are passed on: of the process that was started, or of all of the service."""

    MAIN = "main"
    ALL = "all"


def passed_on(message: bytes) -> bytes:
    """What systemd is told of it; nothing: nothing."""
    lines = [line for line in message.split(b"\n") if not line.startswith((b"MAINPID=", b"MAINPIDFDID="))]
    return b"\n".join(lines).strip(b"\n")


class NotifyRelay:
    """``listen`` before the service starts, then ``begin``, which takes a thread.

    Args:
        address: systemd's socket, as NOTIFY_SOCKET has it; None: nobody is told, and the messages are only heard.

    Attributes:
        is_ready: set when the service has said READY=1.
    """

    def __init__(self, address: str | None, access: NotifyAccess) -> None:
        self._address = "\0" + address[1:] if address is not None and address.startswith("@") else address
        self.is_ready = threading.Event()
        self._access = access
        self._heard: socket.socket | None = None
        self._path: Path | None = None
        self._thread: threading.Thread | None = None
        self._sender = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)

    def listen(self, io: Path) -> None:
        """Be there for a service whose directory of output files this is; raises OSError."""
        io.chmod(0o755)
        heard = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        heard.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        (io / _NAME).unlink(missing_ok=True)  # of a command that was killed, whose service is taken over
        with near(io / _NAME) as name:
            heard.bind(name)
        (io / _NAME).chmod(0o666)
        self._heard, self._path = heard, io / _NAME

    def begin(self, main: int) -> None:
        """Pass messages on from now on; ``main``: host pid of the service."""
        if self._heard is not None:
            self._thread = threading.Thread(target=self._pass_on, args=(self._heard, main), daemon=True)
            self._thread.start()

    def notify(self, text: str) -> None:
        """Tell systemd something in the service's place."""
        self._send(text.encode(), [])

    def close(self) -> None:
        """Hear and say no more; what had come is passed on."""
        if self._heard is not None and self._path is not None:
            self._path.unlink(missing_ok=True)
            with contextlib.suppress(OSError):
                self._heard.shutdown(socket.SHUT_RD)
            if self._thread is not None:
                self._thread.join(_END_LIMIT)
            self._heard.close()
        self._sender.close()

    def _pass_on(self, heard: socket.socket, main: int) -> None:
        room = socket.CMSG_SPACE(_CREDENTIALS.size) + socket.CMSG_SPACE(4 * _RIGHTS_MOST)
        with contextlib.suppress(OSError):
            while True:
                message, extras, _, _ = heard.recvmsg(_MESSAGE_MOST, room, socket.MSG_CMSG_CLOEXEC)
                if not extras:
                    return  # it was shut down: each message has its sender's credentials
                self._receive(message, extras, main)

    def _receive(self, message: bytes, extras: list[tuple[int, int, bytes]], main: int) -> None:
        sender, descriptors = 0, array.array("i")
        for _, kind, data in extras:
            if kind == socket.SCM_CREDENTIALS:
                sender = _CREDENTIALS.unpack(data[: _CREDENTIALS.size])[0]
            elif kind == socket.SCM_RIGHTS:
                descriptors.frombytes(data[: len(data) - len(data) % descriptors.itemsize])
        try:
            text = passed_on(message)
            if text and (self._access is NotifyAccess.ALL or sender == main):
                self._send(text, list(descriptors))
                if b"READY=1" in text.split(b"\n"):
                    self.is_ready.set()
        finally:
            for descriptor in descriptors:
                os.close(descriptor)

    def _send(self, text: bytes, descriptors: list[int]) -> None:
        if self._address is None:
            return
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))]
        # systemd is being started anew; it would not have heard the service either.
        with contextlib.suppress(OSError):
            self._sender.sendmsg([text], rights if descriptors else [], 0, self._address)
