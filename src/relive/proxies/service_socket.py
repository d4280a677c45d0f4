"""The connection to the service, on a bare socket.

Not an asyncio transport, because the gate needs two things that a transport hides: that not one byte reaches the
kernel after it closed, and exactly how many did before.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
import struct
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias

__all__ = ["Address", "Dialer", "ServiceOwner", "ServiceSocket"]

Address: TypeAlias = tuple[int, Any]  # (family, what socket.connect takes)
_BIND_ADDRESS_NO_PORT = 24  # IP_BIND_ADDRESS_NO_PORT: the port is chosen at connect, by both ends
_SMALL_READ, _LARGE_READ = 64 * 1024, 256 * 1024
_READS_AT_ONCE = 16
_RETRY_SECONDS = 0.05
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)
_IN_PROGRESS = (errno.EINPROGRESS, errno.EALREADY, errno.EWOULDBLOCK)
# What a service that is still starting (or its network that is still being set up) answers.
_WORTH_RETRYING = (
    errno.ECONNREFUSED,
    errno.ETIMEDOUT,
    errno.EHOSTUNREACH,
    errno.ENETUNREACH,
)
# Of this process or host: descriptors, memory, ports to connect from.
_SHORTAGES = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EADDRNOTAVAIL)


class ServiceOwner(Protocol):
    """Who is told what the service does. None of these is called from within a call to the socket."""

    def service_data(self, data: bytes) -> None:
        """The service sent bytes."""

    def service_eof(self) -> None:
        """The service closed its side; nothing more will come."""

    def service_lost(self, error: OSError, /) -> None:
        """The connection broke, in either direction; the socket is closed already."""

    def service_drained(self) -> None:
        """All that waited to be sent has been sent."""


class ServiceSocket:
    """One established connection to the service.

    Attributes:
        sent: bytes the kernel has taken, over the life of the connection.
        backlog: bytes given to ``send`` that the kernel has not taken yet.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, sock: socket.socket, owner: ServiceOwner) -> None:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._loop = loop
        self._sock = sock
        self._fd = sock.fileno()
        self._owner = owner
        self._queue: deque[memoryview] = deque()
        self._read_size = _SMALL_READ
        self._reads_at_once = _READS_AT_ONCE if type(loop).__module__.startswith("uvloop") else 1
        self._reading = self._writing = False
        self._frozen = self._shut = False
        self._close_on_thaw: bool | None = None  # the value is whether to reset
        self._at_eof = False
        # It takes no more, but what it said before may still be there to read.
        self._refusal: OSError | None = None
        self.sent = 0
        self.backlog = 0
        self.local_port: int = sock.getsockname()[1]
        self.resume_reading()

    def send(self, data: bytes) -> None:
        """Send, now as far as the kernel takes it; the rest when it can, and while frozen nothing."""
        if self._refusal is not None:
            return
        if self._queue or self._frozen:
            self._enqueue(memoryview(data))
            return
        try:
            count = self._sock.send(data)
        except BlockingIOError:
            count = 0
        except OSError as error:
            self._refused(error)
            return
        self.sent += count
        if count < len(data):
            self._enqueue(memoryview(data)[count:])
            self._watch_writable()

    def shutdown(self) -> None:
        """Say that no more is to come, once all is sent (and the gate is open). May be called multiple times."""
        self._shut = True
        if not self._frozen and not self._queue and self._fd >= 0:
            with contextlib.suppress(OSError):
                self._sock.shutdown(socket.SHUT_WR)

    def close(self, *, reset: bool = False) -> None:
        """Close, with RST if ``reset``; while frozen, only once thawed. May be called multiple times."""
        self.pause_reading()
        self._unwatch_writable()
        if self._frozen:
            self._close_on_thaw = reset
            return
        if self._fd < 0:
            return
        if reset:
            with contextlib.suppress(OSError):
                self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
        self._fd = -1
        self._sock.close()

    @property
    def is_even(self) -> bool:
        """All that was given to it has gone out, nothing has ended, and nothing has failed."""
        return (
            self._fd >= 0
            and not self.backlog
            and not self._at_eof
            and not self._shut
            and self._refusal is None
            and not self._frozen
        )

    def detach(self) -> socket.socket:
        """The socket, which is the caller's from now on; this one does nothing more."""
        self.pause_reading()
        self._unwatch_writable()
        self._fd = -1
        return self._sock

    def freeze(self) -> None:
        """From now on nothing goes out: no byte, no FIN, no RST. What the service sends is still read."""
        self._frozen = True
        self._unwatch_writable()

    def thaw(self) -> None:
        """Go on where ``freeze`` stopped."""
        self._frozen = False
        if self._close_on_thaw is not None:
            self.close(reset=self._close_on_thaw)
        elif self._queue:
            self._watch_writable()
        elif self._shut:
            self.shutdown()

    def pause_reading(self) -> None:
        """Read no more for now: the client is slower than the service."""
        if self._reading:
            self._reading = False
            self._loop.remove_reader(self._fd)

    def resume_reading(self) -> None:
        """Read again; nothing happens after the end."""
        if not self._reading and self._fd >= 0 and not self._at_eof and self._close_on_thaw is None:
            self._reading = True
            self._loop.add_reader(self._fd, self._readable)

    def _readable(self) -> None:
        """Under uvloop read until nothing is left: when a reset comes with data, libuv calls once and never again (uv__poll_io)."""
        for _ in range(self._reads_at_once):
            if not self._reading:
                return
            try:
                data = self._sock.recv(self._read_size)
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                self._lose(error)
                return
            if not data:
                self._at_eof = True
                self.pause_reading()
                if self._refusal is not None:
                    self._lose(self._refusal)
                else:
                    self._owner.service_eof()
                return
            # Large reads only where they fill up: the memory is taken before it is known how much comes.
            self._read_size = _LARGE_READ if len(data) >= _SMALL_READ else _SMALL_READ
            self._owner.service_data(data)
        # Others have their turn, and then a call comes in any case.
        if self._reading and self._reads_at_once > 1:
            self.pause_reading()
            self.resume_reading()

    def _writable(self) -> None:
        while self._queue:
            chunk = self._queue[0]
            try:
                count = self._sock.send(chunk)
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                self._refused(error)
                return
            self.sent += count
            self.backlog -= count
            if count < len(chunk):
                self._queue[0] = chunk[count:]
                return
            self._queue.popleft()
        self._unwatch_writable()
        if self._shut:
            self.shutdown()
        self._owner.service_drained()

    def _enqueue(self, chunk: memoryview) -> None:
        self._queue.append(chunk)
        self.backlog += len(chunk)

    def _watch_writable(self) -> None:
        if not self._writing and not self._frozen and self._fd >= 0:
            self._writing = True
            self._loop.add_writer(self._fd, self._writable)

    def _unwatch_writable(self) -> None:
        if self._writing:
            self._writing = False
            self._loop.remove_writer(self._fd)

    def _refused(self, error: OSError) -> None:
        """A service that answers early and closes resets us while its answer waits to be read: that comes first."""
        if self._at_eof or error.errno not in (errno.EPIPE, errno.ECONNRESET):
            self._loop.call_soon(self._lose, error)
            return
        self._refusal = error
        self._queue.clear()
        self.backlog = 0
        self._unwatch_writable()

    def _lose(self, error: OSError) -> None:
        if self._fd >= 0 and self._close_on_thaw is None:
            self.close()
            self._owner.service_lost(error)


class Dialer:
    """Opens one connection to the service, trying again for a while when it does not listen (yet).

    A service whose queue is full does not answer, as anybody's client would see it: then the kernel goes on trying, for two
    minutes (tcp_syn_retries), and fails with ETIMEDOUT. Nor is it the service's fault when this process or this host is short of
    something: that is waited for without end. Who asked may give up before (``cancel``).

    ``done`` is called once, with the connected socket or the last error; never from within the constructor, and
    never after ``cancel``. While frozen, nothing is tried, and an attempt that was under way is given up and repeated.
    ``source``: own address that it connects from.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        addresses: Sequence[Address],
        wait_seconds: float,
        done: Callable[[socket.socket | OSError], None],
        *,
        frozen: bool,
        source: tuple[str, int] | None = None,
    ) -> None:
        self._source = source
        self._loop = loop
        self._addresses = addresses
        self._tries = 0
        self._deadline = time.monotonic() + wait_seconds
        self._done = done
        self._frozen = frozen
        self._sock: socket.socket | None = None
        self._timer: asyncio.Handle | None = None
        if not frozen:
            self._timer = loop.call_soon(self._dial)

    def freeze(self) -> None:
        """Stop trying; a half-made connection is taken back."""
        self._frozen = True
        self._drop()

    def thaw(self) -> None:
        """Try again."""
        self._frozen = False
        self._timer = self._loop.call_soon(self._dial)

    def cancel(self) -> None:
        """Nobody wants the connection any more."""
        self._drop()

    def _drop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._sock is not None:
            self._loop.remove_writer(self._sock.fileno())
            self._sock.close()
            self._sock = None

    def _dial(self) -> None:
        family, address = self._addresses[self._tries % len(self._addresses)]
        self._tries += 1
        try:
            sock = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
            if self._source is not None:
                sock.setsockopt(socket.IPPROTO_IP, _BIND_ADDRESS_NO_PORT, 1)
                sock.bind(self._source)
        except OSError as error:  # no file descriptor left
            self._settle(error.errno or errno.EMFILE)
            return
        self._sock = sock
        code = sock.connect_ex(address)
        if code in _IN_PROGRESS:
            # On the same host the connection is usually made by now: the second call says so.
            code = sock.connect_ex(address)
        if code in _IN_PROGRESS:
            self._loop.add_writer(sock.fileno(), self._writable)
        else:
            self._settle(0 if code == errno.EISCONN else code)

    def _writable(self) -> None:
        if self._sock is not None:
            self._settle(self._sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR))

    def _settle(self, code: int) -> None:
        sock = self._sock
        if code == 0 and sock is not None and _is_own_peer(sock):
            code = errno.ECONNREFUSED
        if code == 0 and sock is not None:
            self._loop.remove_writer(sock.fileno())
            self._sock = None
            self._drop()
            self._done(sock)
            return
        self._drop()
        more_addresses = self._tries % len(self._addresses) != 0
        if more_addresses:
            self._timer = self._loop.call_soon(self._dial)
        elif code in _SHORTAGES or (
            code in _WORTH_RETRYING and time.monotonic() + _RETRY_SECONDS < self._deadline
        ):
            self._timer = self._loop.call_later(_RETRY_SECONDS, self._dial)
        else:
            self._done(OSError(code, os.strerror(code)))


def _is_own_peer(sock: socket.socket) -> bool:
    """Where nobody listens the kernel may choose the very port that is called, and connect a socket to itself."""
    try:
        return bool(sock.getsockname() == sock.getpeername())
    except OSError:  # it was reset meanwhile
        return False
