"""The stubs of a network without a branch in it: who connects, and who wants to."""

from __future__ import annotations

import asyncio
import os
import socket
import struct
import time
from collections.abc import Callable, Iterator

import pytest

from relive.protocols.egress_window import EgressWindow
from relive.protocols.registry import ProtocolRegistry
from relive.recording.dialogues import Dialogue
from relive.recording.events import Event, EventKind
from relive.replay.stubs import server as module
from relive.replay.stubs.plan import Stubs
from relive.replay.stubs.server import StubServer
from relive.replay.stubs.speed import parse_speed
from relive.sandbox.endpoints import OpenedEndpoints, open_endpoints

from .sealed import SECOND, TAKEN, Network, dialogue, network, plain_of

HERE, THERE = ("10.0.0.5", 99), ("10.0.0.6", 99)


@pytest.fixture
def inside() -> Iterator[Network]:
    with network("10.0.0.5", "10.0.0.6") as made:
        yield made


def later(number: int, to: tuple[str, int], *said: tuple[str, bytes], **facts: object) -> Dialogue:
    return dialogue(number, to, *said, opened_ns=TAKEN + number * SECOND, **facts)


def served(inside: Network, egress: EgressWindow, service: Callable[[StubServer], None]) -> StubServer:
    """Run the stubs of what was recorded while a service does something, in a thread of its own; returns them, closed."""
    plan = Stubs(egress, plain_of).plan([])
    ends = OpenedEndpoints()
    inside.within(lambda: open_endpoints(plan.outside, [], ends))

    async def work() -> StubServer:
        server = StubServer(
            plan,
            ends,
            ProtocolRegistry(),
            init=inside.pid,
            authority=plan.authority,
            speed=parse_speed("max"),
            own_ports=[8000],
        )
        server.start()
        try:
            await asyncio.wait_for(asyncio.to_thread(service, server), 20)
        finally:
            await server.close()
        return server

    before = set(os.listdir("/proc/self/fd"))
    done = asyncio.run(work())
    assert len(os.listdir("/proc/self/fd")) <= len(before), "a socket was left open"
    return done


def test_a_new_connection_is_answered_and_what_was_not_asked_is_left(inside: Network) -> None:
    said = (("up", b"one"), ("down", b"ONE"), ("up", b"two"), ("down", b"TWO"))

    def service(server: StubServer) -> None:
        with inside.connect(HERE) as sock:
            sock.sendall(b"one")
            assert sock.recv(9) == b"ONE"
            sock.sendall(b"three")
            with pytest.raises(ConnectionResetError):
                sock.recv(9)

    done = served(inside, EgressWindow(TAKEN, [later(1, HERE, *said)]), service)
    assert (done.given, done.missed) == (1, 1)
    ((destination, found),) = done.misses
    assert destination == HERE and found.nearest is not None and found.differs
    assert [call.extra["question"] for call in done.left()] == [b"two"]


def test_a_destination_is_refused_or_silent_when_its_turn_comes(inside: Network) -> None:
    """GIVEN attempts that were taken, refused twice, taken, in silence for a second, and taken
    WHEN the service tries again and again
    THEN the same becomes of it.
    """
    errors = [None, "ECONNREFUSED", "ECONNREFUSED", None, "ETIMEDOUT", None]
    egress = EgressWindow(
        TAKEN,
        [later(place, HERE, error=error, connect_ns=SECOND // 5) for place, error in enumerate(errors, 1)],
    )
    outcomes: list[str] = []

    def service(server: StubServer) -> None:
        for place in range(len(errors)):
            outcomes.append(inside.outcome(HERE, 0.3))
            while server.attempted[HERE] <= place:  # the stubs hear of it a moment later
                time.sleep(0.001)

    served(inside, egress, service)
    taken, refused, silent = "connected", "ConnectionRefusedError", "TimeoutError"
    assert outcomes == [taken, refused, refused, taken, silent, taken]


def test_destinations_that_were_never_recorded_are_counted(inside: Network) -> None:
    def service(server: StubServer) -> None:
        for _ in range(3):
            assert inside.outcome(("10.0.0.6", 7)) == "ConnectionRefusedError"
        inside.outcome(("10.0.0.5", 8000))  # where the service itself listens

    done = served(inside, EgressWindow(TAKEN, [later(1, HERE), later(2, THERE)]), service)
    assert done.strangers == {("10.0.0.6", 7): 3}


def test_more_connections_than_can_be_held_are_reset_and_told(
    inside: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_MOST_CONVERSATIONS", 3)

    def service(server: StubServer) -> None:
        socks = [inside.connect(HERE) for _ in range(3)]
        with pytest.raises(ConnectionResetError), inside.connect(HERE) as one:
            one.recv(1)
        for sock in socks:
            sock.close()

    done = served(inside, EgressWindow(TAKEN, [later(1, HERE)]), service)
    assert done.notes == ["the service opened more than 3 connections; the rest were reset"]


def test_names_are_answered_over_udp(inside: Network) -> None:
    name = b"\x02db\x00" + struct.pack("!2H", 1, 1)
    question = struct.pack("!6H", 7, 0x0100, 1, 0, 0, 0) + name
    record = b"\xc0\x0c" + struct.pack("!2HIH", 1, 1, 60, 4) + b"\x0a\x00\x00\x05"
    answer = struct.pack("!6H", 7, 0x8180, 1, 1, 0, 0) + name + record
    fields = {"to": ("10.0.0.6", 53), "question": question, "ns": 1000}
    lookup = Event(1, TAKEN - SECOND, 0, EventKind.NAME_LOOKUP, data=answer, fields=fields)

    def service(server: StubServer) -> None:
        sock = inside.within(lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        with sock:
            sock.settimeout(20)
            for number in (b"\x12\x34", b"\x56\x78"):
                sock.sendto(number + question[2:], ("10.0.0.6", 53))
                assert sock.recv(512) == number + answer[2:]

    done = served(inside, EgressWindow(TAKEN, [], [lookup]), service)
    assert done.left() == [] and done.missed == 0
