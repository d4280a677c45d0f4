"""Connections that are carried in C: the same recording as Python's, and where each stands for the next recorder."""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kernel.helpers import needs_root
from relive.proxies.egress._pairs import Places, Standing, standing
from relive.proxies.relay import SocketPlaces
from relive.recording.dialogues import Way
from relive.recording.events import EventKind
from support.bordered import Bordered
from support.waiting import LIMIT, eventually

BEFORE = Places(inner=SocketPlaces(read=100, written=2_000), outer=SocketPlaces(read=2_001, written=101))
_RESET = struct.pack("ii", 1, 0)


def now(*, up_taken: int = 0, up_sent: int = 0, down_taken: int = 0, down_sent: int = 0) -> Places:
    inner, outer = BEFORE
    return Places(
        SocketPlaces(inner.read + up_taken, inner.written + down_sent),
        SocketPlaces(outer.read + down_taken, outer.written + up_sent),
    )


@pytest.mark.parametrize(
    ("places", "up", "down"),
    [
        (now(), Standing(7, 0), Standing(9, 0)),
        (now(up_taken=5, up_sent=5, down_taken=6, down_sent=6), Standing(12, 0), Standing(15, 0)),
        (now(up_taken=1, up_sent=5, down_taken=2, down_sent=6), Standing(12, 4), Standing(15, 4)),
    ],
    ids=["nothing said since", "all taken", "killed between sending and taking"],
)
def test_where_a_direction_stands_follows_from_what_the_kernel_counts(places, up, down):
    assert standing(Way.UP, 7, BEFORE, places) == up
    assert standing(Way.DOWN, 9, BEFORE, places) == down


# What is said, in lockstep, so that both recorders read the same pieces.


def echoes(service: socket.socket, server: socket.socket) -> None:
    for said in (b"a", b"b" * 5000, b"c" * 40):
        service.sendall(said)
        assert received(server, len(said)) == said
        server.sendall(said.upper())
        assert received(service, len(said)) == said.upper()
    service.close()
    assert server.recv(1) == b""
    server.close()


def server_speaks_first(service: socket.socket, server: socket.socket) -> None:
    server.sendall(b"hello\r\n")
    assert received(service, 7) == b"hello\r\n"
    server.shutdown(socket.SHUT_WR)
    assert service.recv(1) == b""
    service.sendall(b"bye")
    assert received(server, 3) == b"bye"
    service.close()
    assert server.recv(1) == b""
    server.close()


def server_resets(service: socket.socket, server: socket.socket) -> None:
    service.sendall(b"question")
    assert received(server, 8) == b"question"
    server.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    server.close()
    with contextlib.suppress(ConnectionResetError):
        assert service.recv(1) == b""
    service.close()


def service_resets(service: socket.socket, server: socket.socket) -> None:
    server.sendall(b"first")
    assert received(service, 5) == b"first"
    service.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    service.close()
    with contextlib.suppress(ConnectionResetError):
        assert server.recv(1) == b""
    server.close()


def asks_for_tls_in_vain(service: socket.socket, server: socket.socket) -> None:
    asked = bytes([0, 0, 0, 8, 4, 210, 22, 47])  # what libpq says first
    service.sendall(asked)
    assert received(server, 8) == asked
    server.sendall(b"N")
    assert received(service, 1) == b"N"
    echoes(service, server)


def says_nothing(service: socket.socket, server: socket.socket) -> None:
    service.close()
    assert server.recv(1) == b""
    server.close()


SCRIPTS = [echoes, server_speaks_first, server_resets, service_resets, asks_for_tls_in_vain, says_nothing]


def received(sock: socket.socket, size: int) -> bytes:
    got = b""
    while len(got) < size:
        part = sock.recv(size - len(got))
        assert part, f"ended after {got!r:.40}"
        got += part
    return got


def played(border: Bordered, script: Callable[[socket.socket, socket.socket], None]) -> list[Any]:
    """What is recorded of a script, without what is never the same twice."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(LIMIT)
        service = border.connect(listener.getsockname()[:2])
        name = service.getsockname()[:2]
        with service:
            server, _ = listener.accept()
            with server:
                server.settimeout(LIMIT)
                server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                script(service, server)
    eventually(lambda: len(border.dialogue(name).endings) == 2, "its ends are recorded")
    number = border.dialogue(name).number
    told = []
    for event in border.events():
        if event.connection == number:
            fields = dict(event.fields)
            if event.kind is EventKind.DIALOGUE_OPENED:
                fields = dict.fromkeys(fields)
            told.append((event.kind, list(fields.items()), event.data))
    return told


@needs_root
def test_what_is_recorded_is_the_same_whether_c_or_python_carries(tmp_path: Path) -> None:
    found = []
    for in_python in (True, False):
        (tmp_path / str(in_python)).mkdir()
        border = Bordered(tmp_path / str(in_python), in_python=in_python)
        with contextlib.closing(border):
            border.start()
            found.append({script.__name__: played(border, script) for script in SCRIPTS})
    assert found[0] == found[1]
    assert all(len(told) >= 3 for told in found[0].values())
