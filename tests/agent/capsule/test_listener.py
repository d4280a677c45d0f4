"""Opening the public port, and getting it from process 1, which ``relive-init`` is here outside of any capsule."""

from __future__ import annotations

import socket
import subprocess
from pathlib import Path

import pytest

from relive.agent.capsule.listener import open_front, written_address
from relive.checkpoint.criu import CriuTools
from relive.config import load_settings
from relive.errors import CapsuleStartFailed
from relive.model.capsule import CapsuleSpec
from relive.model.commit_policy import Policy
from relive.model.life_paths import LifePaths
from relive.proxies.listeners import receive_listener
from support.ports import free_port


def spec(listen: int, upstream: int) -> CapsuleSpec:
    policy = Policy(at_start=False)
    ends = {"listen": ("127.0.0.1", listen), "upstream": ("localhost", upstream)}
    return CapsuleSpec(name="x", command=["x"], directory="/", environment={}, policy=policy, **ends)


def test_addresses_are_written_as_command_lines_have_them():
    assert written_address(("127.0.0.1", 80)) == "127.0.0.1:80"
    assert written_address(("::1", 80)) == "[::1]:80"


def test_a_port_that_is_taken_is_told(tmp_path: Path):
    with socket.create_server(("127.0.0.1", 0)) as other, pytest.raises(CapsuleStartFailed) as caught:
        open_front(spec(other.getsockname()[1], 1), LifePaths(tmp_path))
    assert "Address already in use" in str(caught.value.cause)


def test_while_a_proxy_is_there_all_connections_are_its(tmp_path: Path):
    """GIVEN process 1 WHEN proxies come and go THEN each gets the listener, and after the last one it carries by itself."""
    service = socket.create_server(("127.0.0.1", 0))
    service.settimeout(20)
    port = free_port()
    front = open_front(spec(port, service.getsockname()[1]), LifePaths(tmp_path))
    assert front is not None and front.upstream[0] == "127.0.0.1"
    ends = [front.listener.fileno(), front.control.fileno()]
    words = ["--front", *map(str, ends), front.upstream[0], str(front.upstream[1])]
    program = CriuTools(load_settings().tools_path).init
    null = subprocess.DEVNULL
    init = subprocess.Popen([program, *words, "1", "0"], pass_fds=ends, stdout=null)
    front.close()
    try:
        for _ in range(2):
            listener, line, _ = receive_listener(LifePaths(tmp_path).front_socket)
            listener.settimeout(20)
            with socket.create_connection(("127.0.0.1", port)) as client, listener.accept()[0] as taken:
                client.sendall(b"x")
                assert taken.recv(1) == b"x"
            listener.close()
            line.close()
        big = bytes(range(256)) * 4096
        with socket.create_connection(("127.0.0.1", port), 20) as client:
            carried = service.accept()[0]
            with carried:
                carried.settimeout(20)
                client.sendall(b"ask")
                client.shutdown(socket.SHUT_WR)
                assert carried.makefile("rb").read() == b"ask"
                carried.sendall(big)
            assert client.makefile("rb").read() == big
        service.close()
        with pytest.raises(ConnectionResetError), socket.create_connection(("127.0.0.1", port), 20) as client:
            client.recv(1)  # as the service refused it
    finally:
        init.kill()
        init.wait()
