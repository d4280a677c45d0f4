"""The pipe that tests of protocols record with: it keeps what was said, and does to one end what the other did."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable

import pytest

from relive.recording.dialogues import Way
from support.ports import free_port

from .recording import recording


def _answering(answer: Callable[[socket.socket], None]) -> tuple[tuple[str, int], threading.Thread]:
    """A server for one connection."""
    listening = socket.create_server(("127.0.0.1", 0))

    def run() -> None:
        with listening, listening.accept()[0] as connection:
            answer(connection)

    thread = threading.Thread(target=run)
    thread.start()
    return listening.getsockname(), thread


def test_both_directions_are_kept_in_their_order_and_a_half_close_is_passed_on():
    def shout(connection: socket.socket) -> None:
        heard = b"".join(iter(lambda: connection.recv(100), b""))  # until the client's half-close
        connection.sendall(heard.upper())

    to, thread = _answering(shout)
    with recording(to) as pipe, socket.create_connection(("127.0.0.1", pipe.port)) as client:
        client.sendall(b"hello ")
        client.sendall(b"there")
        client.shutdown(socket.SHUT_WR)
        assert b"".join(iter(lambda: client.recv(100), b"")) == b"HELLO THERE"
        (dialogue,) = pipe.settle()
    thread.join()
    assert (dialogue.text(Way.UP), dialogue.text(Way.DOWN)) == (b"hello there", b"HELLO THERE")
    assert [dialogue.endings[way].how for way in Way] == ["closed", "closed"]
    assert dialogue.endings[Way.UP].mono_ns <= dialogue.of(Way.DOWN)[0].mono_ns
    assert [piece.seq for piece in dialogue.pieces] == sorted(piece.seq for piece in dialogue.pieces)


def test_a_reset_by_the_server_reaches_the_client():
    def slam(connection: socket.socket) -> None:
        connection.recv(100)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    to, thread = _answering(slam)
    with recording(to) as pipe, socket.create_connection(("127.0.0.1", pipe.port)) as client:
        client.sendall(b"hello")
        with pytest.raises(ConnectionResetError):
            client.recv(100)
        (dialogue,) = pipe.settle()
    thread.join()
    assert dialogue.endings[Way.DOWN].how == "reset"


def test_a_server_that_is_not_there_is_an_error_of_the_dialogue():
    with recording(("127.0.0.1", free_port())) as pipe:
        with (
            socket.create_connection(("127.0.0.1", pipe.port)) as client,
            pytest.raises(ConnectionResetError),
        ):
            client.recv(100)
        (dialogue,) = pipe.settle()
    assert dialogue.error == "ECONNREFUSED"
