"""The lines between tracer and agent."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator

import pytest

from relive.signals.messages import EventsLost, Exited, Fatal, TracerChannel, parse_event

FATAL = Fatal(12, 13, 11, "SIGSEGV", 1, "SEGV_MAPERR", 0, None, "worker", kept=[1, 2])


@pytest.fixture
def pair() -> Iterator[tuple[TracerChannel, socket.socket]]:
    ours, theirs = socket.socketpair()
    theirs.settimeout(10)
    with ours, theirs:
        yield TracerChannel(ours), theirs


def test_an_event_arrives_as_it_was_sent(pair: tuple[TracerChannel, socket.socket]) -> None:
    channel, agent = pair
    for event in (FATAL, Exited(12, 11), EventsLost(3)):
        channel.event(event)
        assert parse_event(json.loads(agent.recv(4096))) == event


def test_a_field_of_a_newer_tracer_is_ignored() -> None:
    assert parse_event({"op": "exit", "pid": 1, "status": 0, "usage": 3}) == Exited(1, 0)
    assert parse_event({"op": "detached", "held": False}) is None


def test_a_command_may_come_in_pieces(pair: tuple[TracerChannel, socket.socket]) -> None:
    channel, agent = pair
    agent.sendall(b'{"op":"detach"}\n{"op":')
    assert channel.receive() == [{"op": "detach"}]
    agent.sendall(b'"release"}\n')
    assert channel.receive() == [{"op": "release"}]
    assert channel.receive() == []
    assert not channel.closed


@pytest.mark.parametrize("line", [b"{\n", b"[]\n", b"{}\n", b"\xff\n", b"\n"])
def test_junk_is_refused_and_the_next_command_read(
    pair: tuple[TracerChannel, socket.socket], line: bytes
) -> None:
    channel, agent = pair
    agent.sendall(line)
    with pytest.raises(ValueError):
        channel.receive()
    agent.sendall(b'{"op":"detach"}\n')
    assert channel.receive() == [{"op": "detach"}]


def test_an_agent_that_does_not_read_loses_exits_but_no_crash(
    pair: tuple[TracerChannel, socket.socket],
) -> None:
    """And the tracer never blocks on it: it would stop the service."""
    channel, agent = pair
    count = 50_000
    for pid in range(count):
        channel.event(Exited(pid, 0))
    channel.event(FATAL)
    assert channel.has_unsent
    events, rest = [], b""
    while not events or not isinstance(events[-1], EventsLost):
        *lines, rest = (rest + agent.recv(1 << 20)).split(b"\n")
        events += [parse_event(json.loads(line)) for line in lines]
        channel.flush()
    *exits, fatal, lost = events
    assert fatal == FATAL
    assert isinstance(lost, EventsLost)
    assert len(exits) + lost.exits == count
    assert lost.exits > 0
    assert not channel.has_unsent


def test_an_agent_that_is_gone_is_noticed(pair: tuple[TracerChannel, socket.socket]) -> None:
    channel, agent = pair
    agent.close()
    assert channel.receive() == []
    assert channel.closed
    channel.event(FATAL)
