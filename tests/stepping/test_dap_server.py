"""Messages of the Debug Adapter Protocol over a socket of loopback."""

from __future__ import annotations

import io
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing

import pytest

from relive.errors import UsageError
from relive.stepping import dap_server
from relive.stepping.dap import DapAdapter
from relive.stepping.dap_server import listening, read_message, serve_one
from relive.stepping.stepping_session import SteppingSession
from support.waiting import LIMIT


class Port:
    """An adapter that restores no branch, at a port; ``served`` when it has ended."""

    def __init__(self) -> None:
        self.listener = listening(0)
        adapter = DapAdapter(SteppingSession(_nobody), "a request", "it failed")  # type: ignore[arg-type]
        self.serving = threading.Thread(target=serve_one, args=[self.listener, adapter], daemon=True)
        self.serving.start()

    def connect(self) -> socket.socket:
        return socket.create_connection(self.listener.getsockname(), timeout=LIMIT)

    def leave(self) -> None:
        """As a client does that is taken."""
        with self.connect() as client, client.makefile("rb") as stream:
            for number, command in ((1, "initialize"), (2, "disconnect")):
                client.sendall(_framed({"seq": number, "type": "request", "command": command}))
            told = [one for one in iter(lambda: read_message(stream), None) if one["type"] == "response"]
            assert [(one["request_seq"], one["success"]) for one in told] == [(1, True), (2, True)]
        self.serving.join(LIMIT)
        assert not self.serving.is_alive()


def _nobody(*_: object) -> None:
    raise AssertionError("a branch was restored")


def _framed(told: object) -> bytes:
    data = json.dumps(told).encode()
    return b"Content-Length: %d\r\n\r\n" % len(data) + data


@pytest.fixture
def port() -> Iterator[Port]:
    made = Port()
    with closing(made.listener):
        yield made


def _ends(client: socket.socket) -> bool:
    try:
        return client.recv(1) == b""
    except ConnectionResetError:
        return True


def test_a_client_of_loopback_is_answered_until_it_leaves(port):
    assert port.listener.getsockname()[0] == "127.0.0.1"
    port.leave()


@pytest.mark.parametrize(
    "data",
    [
        b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\n" + _framed({"command": "initialize", "seq": 1}),
        _framed({"command": "evaluate", "seq": 1, "arguments": {"expression": "1"}}),
        _framed([]),
    ],
)
def test_what_is_no_client_of_the_protocol_is_turned_away_and_the_next_is_taken(port, data):
    with port.connect() as client:
        client.sendall(data)
        assert _ends(client)
    port.leave()


def test_whoever_says_nothing_does_not_keep_the_port(port, monkeypatch):
    monkeypatch.setattr(dap_server, "_FIRST", 0.05)
    with port.connect() as client:
        assert _ends(client)
    port.leave()


def test_a_client_of_another_user_is_turned_away(port, monkeypatch):
    monkeypatch.delenv("SUDO_UID", raising=False)
    text = f"import socket, sys; c = socket.create_connection(('127.0.0.1', {port.listener.getsockname()[1]}), {LIMIT})"
    text += "; c.sendall(sys.argv[1].encode()); print(c.recv(100))"
    said = _framed({"seq": 1, "type": "request", "command": "initialize"}).decode()
    done = subprocess.run(
        [sys.executable, "-c", text, said],
        user=65534,
        group=65534,
        extra_groups=[],
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT,
    )
    # Closed with what it had sent unread, a connection is reset.
    assert done.stdout == "b''\n" or "ConnectionResetError" in done.stderr or "BrokenPipe" in done.stderr
    port.leave()


def test_a_port_that_is_taken_is_told():
    with closing(listening(0)) as listener, pytest.raises(UsageError, match="cannot be listened on"):
        listening(listener.getsockname()[1])


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}",  # as any page in a browser can
        b"Content-Length: 2x\r\n\r\n{}",
        b"Content-Length: 200000\r\n\r\n" + b"[" * 200000,
        b"Content-Length: 99999999\r\n\r\n",
        b"Content-Length: 2\r\n\r\n[]",
        b"Content-Length: 3\r\n\r\n{]}",
        b"Content-Length: -1\r\n\r\n",
        os.urandom(100) * 100 + b"\n" * 30,
    ],
)
def test_what_is_no_message_is_an_error_and_never_waited_for(data):
    with pytest.raises(ValueError):
        assert read_message(io.BytesIO(data)) is not None or pytest.fail("taken for an end")


def test_a_cut_message_is_an_end():
    assert read_message(io.BytesIO(b"")) is None
    assert read_message(io.BytesIO(b"Content-Length: 9\r\n\r\n{}")) is None
