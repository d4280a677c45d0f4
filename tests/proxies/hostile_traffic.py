"""Traffic that nobody means well with, from a seed: valid messages, cut, spliced, and with bytes that are not theirs."""

from __future__ import annotations

import contextlib
import random
import socket
import threading
import time

__all__ = ["HostileService", "attack", "hostile_bytes"]

_REQUESTS = (
    b"GET /a HTTP/1.1\r\nHost: x\r\n\r\n",
    b"POST /p HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello",
    b"HEAD /h HTTP/1.0\r\n\r\n",
    b"POST /c HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n5;a=b\r\nhello\r\n0\r\nT: x\r\n\r\n",
    b"PUT /e HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\nabc",
    b"GET /w HTTP/1.1\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n",
    b"CONNECT x:1 HTTP/1.1\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"POST /l HTTP/1.1\r\nContent-Length: 999999999999999\r\n\r\n" + b"z" * 300,
    b"GET /" + b"a" * 70000 + b" HTTP/1.1\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01",
)
_ANSWERS = (
    b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
    b"HTTP/1.1 204 No Content\r\n\r\n",
    b"HTTP/1.1 500 Oh\r\nContent-Length: 4\r\n\r\noops",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nA;x\r\n0123456789\r\n0\r\nT: v\r\n\r\n",
    b"HTTP/1.0 200 OK\r\n\r\nuntil the end",
    b"HTTP/1.1 100 Continue\r\n\r\n",
    b"HTTP/1.1 101 Switching\r\nUpgrade: websocket\r\n\r\n\x81\x02hi",
    b"HTTP/1.1 200 OK\r\nContent-Length: 400000\r\n\r\n" + b"y" * 400000,
    b"220 mail ready\r\n",
)
_ODD = (
    b"\r\n",
    b"\n",
    b"\r",
    b"\0",
    b" ",
    b":",
    b"HTTP/1.1",
    b"\xff",
    b"0",
    b"Content-Length: 7\r\n",
    b"\r\n\r\n",
)


def _mutated(chance: random.Random, whole: tuple[bytes, ...]) -> bytes:
    data = bytearray(b"".join(chance.choice(whole) for _ in range(chance.choice((1, 1, 2, 5)))))
    for _ in range(chance.choice((0, 0, 0, 1, 3))):
        at = chance.randrange(len(data) + 1)
        what = chance.randrange(4)
        if what == 0:
            data[at : at + chance.randrange(20)] = b""
        elif what == 1:
            data[at:at] = chance.choice(_ODD)
        elif what == 2 and at < len(data):
            data[at] = chance.randrange(256)
        else:
            del data[at:]
    return bytes(data)


def hostile_bytes(chance: random.Random) -> tuple[bytes, bytes]:
    """What a client may say, and what a service may answer."""
    return _mutated(chance, _REQUESTS), _mutated(chance, _ANSWERS)


def _say(chance: random.Random, sock: socket.socket, data: bytes) -> None:
    while data:
        size = chance.choice((1, 7, 100, 5000, len(data)))
        sock.sendall(data[:size])
        data = data[size:]
        if chance.random() < 0.1:
            time.sleep(0.001)


def _leave(chance: random.Random, sock: socket.socket) -> None:
    how = chance.randrange(3)
    with contextlib.suppress(OSError):
        if how == 0:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        elif how == 1:
            sock.shutdown(socket.SHUT_WR)
            sock.settimeout(0.2)
            while sock.recv(65536):
                pass
    sock.close()


class HostileService:
    """Answers, or not, whatever it is asked."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=512)
        self.port: int = self._listener.getsockname()[1]
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def close(self) -> None:
        """Once its clients are gone."""
        self._listener.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            for number in range(1 << 30):
                sock = self._listener.accept()[0]
                thread = threading.Thread(target=self._answer, args=(sock, number))
                self._threads = [one for one in self._threads if one.is_alive()] + [thread]
                thread.start()

    def _answer(self, sock: socket.socket, number: int) -> None:
        chance = random.Random(self._seed * 1000003 + number)
        sock.settimeout(0.3)
        with contextlib.suppress(OSError):
            for _ in range(chance.randrange(6)):
                if not sock.recv(chance.choice((10, 65536))):
                    break
                _say(
                    chance,
                    sock,
                    _mutated(chance, _ANSWERS) if chance.random() < 0.5 else chance.choice(_ANSWERS),
                )
        _leave(chance, sock)


def attack(port: int, seed: int, until: float) -> int:
    """Be one bad client after the other until that moment of the monotonic clock; returns how many."""
    chance = random.Random(seed)
    count = 0
    while time.monotonic() < until:
        count += 1
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)) as sock:
            _be_bad(chance, sock)
    return count


def _be_bad(chance: random.Random, sock: socket.socket) -> None:
    sock.settimeout(0.3)
    for _ in range(chance.randrange(1, 6)):
        mutated = chance.random() < 0.5
        _say(chance, sock, _mutated(chance, _REQUESTS) if mutated else chance.choice(_REQUESTS[:3]))
        if chance.random() < 0.8:
            with contextlib.suppress(TimeoutError):
                sock.recv(chance.choice((1, 65536)))
    _leave(chance, sock)
