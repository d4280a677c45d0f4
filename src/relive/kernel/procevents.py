"""Hearing of every fork on this host (the proc connector, linux/cn_proc.h), so that a child is known before it does anything."""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterator

__all__ = ["Forks"]

_NETLINK_CONNECTOR = 11
_PROC = (1, 1)  # CN_IDX_PROC, CN_VAL_PROC
_LISTEN = 1
_FORK = 1
_RECEIVE_BYTES = 4 << 20
_NETLINK = struct.Struct("=IHHII")
_CONNECTOR = struct.Struct("=IIIIHH")
_EVENT = struct.Struct("=IIQ")  # what, cpu, time
_IDS = struct.Struct("=iiii")  # parent's thread and process, child's thread and process
_NLMSG_DONE = 3


class Forks:
    """Belongs to one thread at a time.

    Raises:
        OSError: the kernel has no proc connector, or lets nobody listen here (in its first network and PID namespaces only).
    """

    def __init__(self) -> None:
        self._socket = socket.socket(
            socket.AF_NETLINK, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK, _NETLINK_CONNECTOR
        )
        try:
            if os.stat("/proc/self/ns/pid").st_ino != _FIRST_PID_NAMESPACE:
                raise OSError("the kernel numbers processes otherwise than this PID namespace")
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BYTES)
            self._socket.bind((0, _PROC[0]))
            body = struct.pack("=I", _LISTEN)
            message = _CONNECTOR.pack(*_PROC, 0, 0, len(body), 0) + body
            self._socket.send(
                _NETLINK.pack(_NETLINK.size + len(message), _NLMSG_DONE, 0, 0, os.getpid()) + message
            )
        except OSError:
            self._socket.close()
            raise

    def fileno(self) -> int:
        """For poll(2)."""
        return self._socket.fileno()

    def read(self) -> Iterator[tuple[int, int]]:
        """(parent, child) of each process, no thread, that has been forked since; the oldest first.

        Raises:
            OSError: ENOBUFS where some were lost.
        """
        while True:
            try:
                data = self._socket.recv(1 << 16)
            except BlockingIOError:
                return
            at = _NETLINK.size + _CONNECTOR.size
            what, _, _ = _EVENT.unpack_from(data, at)
            if what == _FORK:
                _, parent, thread, child = _IDS.unpack_from(data, at + _EVENT.size)
                if thread == child:
                    yield parent, child

    def close(self) -> None:
        """Hear no more."""
        self._socket.close()


_FIRST_PID_NAMESPACE = 0xEFFFFFFC  # PROC_PID_INIT_INO
