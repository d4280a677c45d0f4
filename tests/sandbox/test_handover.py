"""CRIU's side of a lazy restore is played: pids, userfaultfds, and its end."""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from relive.sandbox.lazy import handover as tested
from relive.sandbox.lazy.handover import Handover, HandoverBroken

FINISHED = 0x52535446


@pytest.fixture
def handover(tmp_path: Path) -> Iterator[Handover]:
    # Longer than the name of a socket can be.
    directory = tmp_path / ("d" * 120)
    directory.mkdir()
    with Handover(directory) as made:
        yield made


@pytest.fixture
def criu(tmp_path: Path, handover: Handover) -> Iterator[socket.socket]:
    """Connected, and taken as such."""
    here = os.open(tmp_path / ("d" * 120), os.O_PATH)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as made:
        made.connect(f"/proc/self/fd/{here}/lazy-pages.socket")
        os.close(here)
        assert handover.receive() is None
        yield made


def send(criu: socket.socket, pid: int, *descriptors: int) -> None:
    criu.sendall(struct.pack("<i", pid))
    if descriptors:
        socket.send_fds(criu, [b"\0"], list(descriptors))


def test_each_living_process_comes_with_its_descriptor(handover: Handover, criu: socket.socket) -> None:
    read, write = os.pipe()
    send(criu, 12, write)
    came = handover.receive()
    assert came is not None and came[0] == 12 and not handover.is_finished
    os.write(came[1], b"the same pipe")
    assert os.read(read, 100) == b"the same pipe"
    for one in (read, write, came[1]):
        os.close(one)


def test_a_zombie_has_none_and_the_end_is_told(handover: Handover, criu: socket.socket) -> None:
    send(criu, -13)
    send(criu, FINISHED)
    assert handover.receive() is None and not handover.is_finished
    assert handover.receive() is None and handover.is_finished


@pytest.mark.parametrize("said", [b"", b"\x01\x02", struct.pack("<i", 12), struct.pack("<i", 12) + b"\0"])
def test_a_restore_that_fails_amid_is_told(handover: Handover, criu: socket.socket, said: bytes) -> None:
    """After nothing, half a pid, a pid, and a byte that carries no descriptor."""
    criu.sendall(said)
    criu.shutdown(socket.SHUT_WR)
    with pytest.raises(HandoverBroken):
        handover.receive()


def test_one_that_stands_still_amid_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tested, "_WITHIN", 0.01)
    with Handover(tmp_path) as handover, socket.socket(socket.AF_UNIX) as criu:
        criu.connect(str(tmp_path / "lazy-pages.socket"))
        handover.receive()
        send(criu, 12)
        with pytest.raises(HandoverBroken):
            handover.receive()
