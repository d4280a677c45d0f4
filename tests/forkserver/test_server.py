"""When a fork server ends, and whom it forks nothing for."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from relive.forkserver import server as subject
from relive.forkserver.server import ForkServer


class Ended(list[str]):
    """What was called at the end."""

    def __call__(self) -> None:
        self.append("retired")


def listener(directory: Path) -> socket.socket:
    made = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    made.bind(str(directory / "socket"))
    made.listen()
    return made


def asking(directory: Path) -> socket.socket:
    made = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    made.settimeout(60)
    made.connect(str(directory / "socket"))
    return made


def no_fork() -> int:
    raise AssertionError("it forked")


def test_without_children_it_ends_by_itself(tmp_path: Path):
    ended = Ended()
    with listener(tmp_path) as one:
        assert ForkServer(one, lambda: True, 0.0, ended).serve() is None
    assert ended == ["retired"]


def test_it_forks_no_old_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Who asks is told at once, by the end of the connection, and the name is free for another server."""
    monkeypatch.setattr(subject.os, "fork", no_fork)
    ended = Ended()
    with listener(tmp_path) as one, asking(tmp_path) as asks:
        assert ForkServer(one, lambda: False, 60.0, ended).serve() is None
        assert asks.recv(1) == b""
    assert ended == ["retired"]


def test_it_forks_for_nobody_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(subject.os, "fork", no_fork)
    monkeypatch.setattr(subject, "peer_user", lambda _connection: 65534)
    with listener(tmp_path) as one, asking(tmp_path) as asks:
        assert ForkServer(one, lambda: True, 0.0, Ended()).serve() is None
        assert asks.recv(1) == b""


def test_who_cannot_be_forked_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """No more processes: the server goes on."""

    def fork() -> int:
        raise BlockingIOError

    monkeypatch.setattr(subject.os, "fork", fork)
    with listener(tmp_path) as one, asking(tmp_path) as asks:
        assert ForkServer(one, lambda: True, 0.0, Ended()).serve() is None
        assert asks.recv(1) == b""
