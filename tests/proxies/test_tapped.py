"""The recorder beside the way, with real sockets on both sides and the service played by the test."""

from __future__ import annotations

import os
import random
import signal
import socket
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernel.helpers import needs_root
from proxies.conftest import Agent
from relive.recording.dialogues import Tls, Way
from relive.recording.events import EventKind
from relive.sandbox.border import hold_group
from support.bordered import Bordered
from support.waiting import LIMIT, eventually

pytestmark = needs_root
_HELLO = b"\x16\x03\x01\x00\x05\x01\x00\x00\x01\x00"


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bordered]:
    """One group for many tests."""
    border = Bordered(tmp_path_factory.mktemp("tapped"), beside=True)
    border.start()
    yield border
    border.close()
    assert not Path(border.facts.group).exists()


@pytest.fixture
def agent(shared: Bordered) -> Iterator[Agent]:
    agent = Agent(shared.control)
    yield agent
    agent.vanish()


def pair(border: Bordered, address: str = "127.0.0.1") -> tuple[socket.socket, socket.socket]:
    """A connection of the service, and the end at which it is accepted."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.create_server((address, 0), family=family) as listener:
        sock = border.connect(listener.getsockname()[:2])
        taken, _ = listener.accept()
    taken.settimeout(LIMIT)
    return sock, taken


def exactly(sock: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        data += sock.recv(size - len(data)) or pytest.fail("it has ended")
    return data


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_both_directions_are_recorded_to_the_byte(shared: Bordered, agent: Agent, address: str) -> None:
    """Blocks of one byte to 300 KB, of which packets have up to 64 KiB; what was got when it is asked is in the recording."""
    seeded = random.Random(16)
    sock, other = pair(shared, address)
    said = {Way.UP: b"", Way.DOWN: b""}
    with sock, other:
        for size in (1, 255, 256, 257, 9000, 70_000, 300_000):
            for way, source, destination in ((Way.UP, sock, other), (Way.DOWN, other, sock)):
                block = seeded.randbytes(size)
                sending = threading.Thread(target=source.sendall, args=(block,))
                sending.start()
                said[way] += exactly(destination, size)
                sending.join()
        assert agent.ask("open", commit=None)["op"] == "opened"
        dialogue = shared.dialogue(sock)
        assert {way: dialogue.text(way) for way in Way} == said
        assert (dialogue.origin, dialogue.to) == (sock.getsockname()[:2], other.getsockname()[:2])
        other.shutdown(socket.SHUT_WR)
        assert sock.recv(1) == b""
    assert agent.ask("catch-up")["op"] == "caught-up"
    endings = shared.dialogue((address, dialogue.origin[1])).endings
    totals = {way: (end.how, end.total, end.cut) for way, end in endings.items()}
    assert totals == {way: ("closed", len(said[way]), 0) for way in Way}
    assert shared.notes() == []


def test_what_fails_is_reset_or_encrypted_is_recorded_as_such(shared: Bordered, agent: Agent) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        refusing = listener.getsockname()
    with pytest.raises(ConnectionRefusedError):
        shared.connect(refusing)
    sock, other = pair(shared)
    with sock:
        sock.sendall(_HELLO)
        assert exactly(other, len(_HELLO)) == _HELLO
        other.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        other.close()
        with pytest.raises(ConnectionResetError):
            sock.recv(1)
        agent.ask("catch-up")
        dialogue = shared.dialogue(sock)
    assert dialogue.tls is Tls.CLOSED and dialogue.text(Way.UP) == _HELLO
    assert {end.how for end in dialogue.endings.values()} == {"reset"}
    assert [one.error for one in shared.dialogues() if one.to == refusing] == ["ECONNREFUSED"]


def test_what_the_service_asks_of_itself_and_what_comes_in_is_not_recorded(
    shared: Bordered, agent: Agent
) -> None:
    before = len(shared.dialogues())
    with shared.server(("127.0.0.1", 0)) as listener:
        name = listener.getsockname()
        for client in (shared.connect(name), socket.create_connection(name)):
            with client, listener.accept()[0] as taken:
                client.sendall(b"question")
                taken.sendall(exactly(taken, 8).upper())
                assert exactly(client, 8) == b"QUESTION"
    agent.ask("catch-up")
    assert len(shared.dialogues()) == before


def test_questions_to_name_servers_are_recorded_with_their_answers(shared: Bordered, agent: Agent) -> None:
    question, answer = b"\x12\x34" + bytes(10) + b"a name", b"\x12\x34" + bytes(10) + b"an address"
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server,
        shared.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock,
    ):
        server.bind(("127.7.7.6", 53))
        sock.settimeout(LIMIT)
        sock.sendto(question, server.getsockname())
        _, asker = server.recvfrom(100)
        server.sendto(answer, asker)
        assert sock.recv(100) == answer
    agent.ask("catch-up")
    (event,) = [one for one in shared.events() if one.kind is EventKind.NAME_LOOKUP]
    assert (event.fields["to"], event.fields["question"], event.data) == (["127.7.7.6", 53], question, answer)


def test_a_group_that_was_left_behind_goes_when_the_next_is_made(shared: Bordered, tmp_path: Path) -> None:
    now = int(time.clock_gettime(time.CLOCK_BOOTTIME))
    names = f"relive-tap-{now - 61}-left", f"relive-tap-{now - 61}-held", f"relive-tap-{now}-young"
    left, *kept = groups = [Path(shared.facts.group).with_name(name) for name in names]
    for group in groups:
        group.mkdir()
    held = hold_group(kept[0])  # an agent has to record what was said by a service that has ended
    border = Bordered(tmp_path, beside=True)
    os.close(held)
    assert not left.exists()
    for group in kept:
        group.rmdir()
    assert Path(shared.facts.group).exists()  # somebody is in it
    border.close()


def test_a_killed_recorder_loses_nothing_and_what_no_room_is_for_is_said(tmp_path: Path) -> None:
    """GIVEN a connection that goes on while its recorder is killed: the next one has all of it.
    WHEN more is said than waits for a recorder that stands still
    THEN the service is not held up, the dialogue ends as lost, and a note says so.
    """
    border = Bordered(tmp_path, beside=True)
    border.start()
    sock, other = pair(border)
    with sock, other:
        sock.sendall(b"before")
        exactly(other, 6)
        with_agent(border, "catch-up")
        border.kill()
        other.sendall(b"meanwhile")
        exactly(sock, 9)
        border.start()
        sock.sendall(b", and after")
        exactly(other, 11)
        with_agent(border, "catch-up")
        (dialogue,) = border.dialogues()
        assert (dialogue.text(Way.UP), dialogue.text(Way.DOWN)) == (b"before, and after", b"meanwhile")
        assert border.notes() == []
        assert border.recorder is not None
        os.kill(border.recorder.pid, signal.SIGSTOP)
        for _ in range(24):
            sending = threading.Thread(target=other.sendall, args=(bytes(1 << 20),))
            sending.start()
            exactly(sock, 1 << 20)
            sending.join()
        os.kill(border.recorder.pid, signal.SIGCONT)
        sock.sendall(b"again")
        exactly(other, 5)
        with_agent(border, "catch-up")
        first, *_, last = border.dialogues()
        assert [end.how for end in first.endings.values()] == ["lost", "lost"]
        assert last.text(Way.UP) == b"again" and last.of(Way.UP)[0].at == len(b"before, and after")
        assert eventually(lambda: [one for one in border.notes() if one["lost"] > 0], "it is said")
    border.close()


def with_agent(border: Bordered, op: str) -> None:
    agent = Agent(border.control)
    agent.ask(op)
    agent.vanish()
