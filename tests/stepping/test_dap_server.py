"""Messages of the Debug Adapter Protocol over a socket of loopback."""

from __future__ import annotations

import io
import json
import os
import socket
import threading
from contextlib import closing

import pytest

from relive.errors import UsageError
from relive.stepping.dap import DapAdapter
from relive.stepping.dap_server import listening, read_message, serve_one
from relive.stepping.timeline import Timeline
from support.waiting import LIMIT


def test_a_client_is_answered_until_it_leaves():
    def nobody(*_: object) -> None:
        raise AssertionError("a branch was restored")

    adapter = DapAdapter(Timeline(nobody), "a request")  # type: ignore[arg-type]
    with closing(listening(0)) as listener:
        serving = threading.Thread(target=serve_one, args=[listener, adapter], daemon=True)
        serving.start()
        with socket.create_connection(listener.getsockname(), timeout=LIMIT) as client:
            stream = client.makefile("rb")
            for number, command in ((1, "initialize"), (2, "disconnect")):
                data = json.dumps({"seq": number, "type": "request", "command": command}).encode()
                client.sendall(b"Content-Length: %d\r\n\r\n" % len(data) + data)
                told = read_message(stream)
                assert told is not None and told["request_seq"] == number and told["success"]
                if command == "initialize":
                    event = read_message(stream)
                    assert event is not None and event["event"] == "initialized"
            assert read_message(stream) is None
        serving.join(LIMIT)
        assert not serving.is_alive()


def test_a_port_that_is_taken_is_told():
    with closing(listening(0)) as listener, pytest.raises(UsageError, match="cannot be listened on"):
        listening(listener.getsockname()[1])


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n\r\n",
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
