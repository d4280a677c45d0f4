"""The control socket: closing the gate, holding requests, and what an agent is told."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable

import pytest

from relive.recording.events import EventKind

from .conftest import GET, OK, TIMEOUT_SECONDS, PlayedService, RunningProxy, Wire


def answered(client: Wire, inside: Wire) -> None:
    inside.expect(GET)
    inside.send(OK)
    client.expect(OK)


def test_nothing_reaches_the_service_while_the_gate_is_closed(proxy: RunningProxy, service: PlayedService):
    """GIVEN a closed gate WHEN old and new connections send THEN it arrives after the commit, in the recording too."""
    agent, client = proxy.agent(), proxy.client()
    client.send(GET)
    inside = service.accept()
    answered(client, inside)
    closed = agent.ask("close")
    port = proxy.events(EventKind.CONNECTION_OPENED)[0].fields["local_port"]
    assert closed["connections"] == [{"connection": 1, "local_port": port, "request": None, "sent": len(GET)}]
    assert inside.sock.getpeername()[1] == port
    newcomer = proxy.client()
    for wire in (client, newcomer):
        wire.send(GET)
    while agent.ask("status")["connections"] != 2:
        pass
    assert inside.is_silent()
    assert closed["cursor"] == agent.ask("status")["cursor"]
    opened = agent.ask("open", commit="c0ffee")
    answered(client, inside)
    answered(newcomer, service.accept())
    commit = proxy.events(EventKind.COMMIT_TAKEN)[0]
    assert (commit.fields["commit"], commit.fields["cursor"], commit.seq) == (
        "c0ffee",
        closed["cursor"],
        opened["cursor"],
    )
    later = proxy.events(EventKind.REQUEST_STARTED)[1:]
    assert len(later) == 2
    assert all(event.seq > commit.seq for event in later)


def test_answers_flow_while_the_gate_is_closed(proxy: RunningProxy, service: PlayedService):
    agent, client = proxy.agent(), proxy.client()
    client.send(GET)
    inside = service.accept()
    inside.expect(GET)
    assert agent.ask("close")["connections"][0]["request"] == 1
    inside.send(OK)
    client.expect(OK)
    assert agent.ask("open", commit=None)["op"] == "opened"


def test_a_client_that_leaves_meanwhile_is_told_to_the_service_afterwards(
    proxy: RunningProxy, service: PlayedService
):
    agent, client = proxy.agent(), proxy.client()
    client.send(GET)
    inside = service.accept()
    inside.expect(GET)
    agent.ask("close")
    client.reset()
    proxy.wait_for(EventKind.REQUEST_ABANDONED)
    inside.sock.setblocking(False)
    with pytest.raises(BlockingIOError):
        inside.sock.recv(1)
    inside.sock.settimeout(10)
    agent.ask("open", commit=None)
    with pytest.raises(ConnectionResetError):
        inside.receive()


def test_bytes_that_the_service_did_not_take_in_time_stay_out(proxy: RunningProxy, service: PlayedService):
    """``sent`` is exact also with a service that does not read: it counts what the kernel took, and it stands still."""
    agent, client = proxy.agent(), proxy.client()
    size = 32 * 1024 * 1024
    client.send(b"POST / HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % size)
    inside = service.accept()
    client.sock.setblocking(False)
    left = memoryview(bytes(size))
    full = False
    while not full:  # until the proxy takes no more either
        try:
            left = left[client.sock.send(left) :]
        except BlockingIOError:
            before, after = agent.ask("status"), agent.ask("status")
            full = before["cursor"] == after["cursor"]
    sent = agent.ask("close")["connections"][0]["sent"]
    got = 0
    while got < sent:
        got += len(inside.receive(1024 * 1024))
    assert got == sent
    inside.sock.setblocking(False)
    with pytest.raises(BlockingIOError):
        inside.receive()
    agent.ask("open", commit=None)
    inside.sock.settimeout(10)
    assert inside.receive()


def test_the_gate_opens_by_itself_when_its_agent_vanishes(proxy: RunningProxy, service: PlayedService):
    agent = proxy.agent()
    agent.ask("close")
    client = proxy.client()
    client.send(GET)
    agent.vanish()
    answered(client, service.accept())
    assert "went away" in proxy.notes("gate")[0]
    back = proxy.agent()
    assert back.ask("open", commit="late")["error"]["code"] == "gate-not-closed"
    assert not proxy.events(EventKind.COMMIT_TAKEN)
    assert back.ask("close")["op"] == "closed"


def test_wrong_messages_get_an_error_and_harm_nothing(proxy: RunningProxy, service: PlayedService):
    agent, other = proxy.agent(), proxy.agent()
    for line in (b"junk\n", b"[]\n", b'{"op":7}\n', b"\xff\xfe\n", b"[" * 5000 + b"\n"):
        agent.sock.sendall(line)
        assert agent.hear()["error"]["code"] == "bad-message"
    assert agent.ask("dance")["error"]["code"] == "unknown-op"
    assert agent.ask("open", commit=7)["error"]["code"] == "bad-message"
    assert agent.ask("go", requests=3)["error"]["code"] == "bad-message"
    agent.ask("close")
    assert agent.ask("close")["error"]["code"] == "gate-closed"
    assert other.ask("close")["error"]["code"] == "gate-closed"
    assert other.ask("open")["error"]["code"] == "not-yours"
    assert agent.ask("open")["op"] == "opened"
    client = proxy.client()
    client.send(GET)
    answered(client, service.accept())


def test_more_agents_than_anyone_needs_are_refused(proxy: RunningProxy):
    agents = [proxy.agent() for _ in range(4)]
    extra = socket.socket(socket.AF_UNIX)
    extra.connect(str(proxy.control))
    assert json.loads(extra.makefile().read())["error"]["code"] == "refused"
    extra.close()
    assert agents[3].ask("status")["op"] == "status"


def is_left_alone(service: PlayedService) -> bool:
    """No connection waits for the service."""
    service.listener.setblocking(False)
    try:
        service.accept()
    except BlockingIOError:
        return True
    finally:
        service.listener.settimeout(TIMEOUT_SECONDS)
    return False


def test_every_request_waits_for_the_agent_and_stays_concurrent(
    start_proxy: Callable[..., RunningProxy], service: PlayedService
):
    """The service is connected to once the request may go on, not while it is frozen for the commit."""
    proxy = start_proxy(service.port, "--every-request")
    agent = proxy.agent()
    clients = [proxy.client() for _ in range(3)]
    for number, client in enumerate(clients, 1):
        client.send(GET)
        assert agent.hear() == {"op": "hold", "request": number}
    assert agent.ask("status")["held"] == 3
    assert is_left_alone(service)
    agent.ask("close")
    agent.ask("open", commit="c1")
    for number in (1, 3):
        assert agent.ask("go", requests=[number, 99], commit="c1")["requests"] == [number]
        answered(clients[number - 1], service.accept())
    assert is_left_alone(service)
    agent.vanish()
    answered(clients[1], service.accept())
    assert "no agent" in proxy.notes("hold")[0]
    assert [event.fields["commit"] for event in proxy.events(EventKind.COMMIT_TAKEN)] == ["c1"]
    commit = proxy.events(EventKind.COMMIT_TAKEN)[0].seq
    assert all(event.seq > commit for event in proxy.events(EventKind.REQUEST_STARTED))


def test_no_call_of_the_service_waits_for_a_client_when_a_request_is_held(
    start_proxy: Callable[..., RunningProxy], service: PlayedService
):
    """Kept connections are given up before the commit, and opened anew for the request; one with an answer under way with that."""
    proxy = start_proxy(service.port, "--every-request")
    agent = proxy.agent()
    kept, busy = proxy.client(), proxy.client()
    insides = []
    for number, client in enumerate((kept, busy), 1):
        client.send(GET)
        agent.hear()
        agent.ask("go", requests=[number], commit="c1")
        insides.append(service.accept())
        insides[-1].expect(GET)
    insides[0].send(OK)
    kept.expect(OK)
    kept.send(GET)
    assert agent.hear() == {"op": "hold", "request": 3}
    assert insides[0].rest() == b""
    assert insides[1].is_silent()
    insides[1].send(OK)
    busy.expect(OK)
    assert insides[1].rest() == b""
    agent.ask("go", requests=[3], commit="c2")
    answered(kept, service.accept())
    opened = proxy.events(EventKind.CONNECTION_OPENED)
    ports = {event.connection: event.fields["local_port"] for event in opened}
    third = proxy.exchange(3)
    assert third.connection == 3  # as it was for the service
    assert third.local_port == ports[3]
    assert proxy.exchange(1).connection == 1


def test_without_an_agent_no_request_waits(start_proxy: Callable[..., RunningProxy], service: PlayedService):
    proxy = start_proxy(service.port, "--every-request")
    client = proxy.client()
    client.send(GET)
    answered(client, service.accept())


def test_a_client_may_leave_while_its_request_is_held(
    start_proxy: Callable[..., RunningProxy], service: PlayedService
):
    proxy = start_proxy(service.port, "--every-request")
    agent, client = proxy.agent(), proxy.client()
    client.send(GET)
    agent.hear()
    client.reset()
    while agent.ask("status")["connections"]:
        pass
    assert is_left_alone(service)
    assert not proxy.events(EventKind.REQUEST_STARTED)
    assert agent.ask("go", requests=[1])["requests"] == []
    assert "never handed on" in proxy.notes("hold")[0]


def test_server_errors_and_hangs_are_told_once(
    start_proxy: Callable[..., RunningProxy], service: PlayedService
):
    proxy = start_proxy(service.port, "--hang-after", "0.1")
    agent, client = proxy.agent(), proxy.client()
    client.send(GET)
    inside = service.accept()
    inside.expect(GET)
    slow = agent.hear()
    assert (slow["op"], slow["request"]) == ("unanswered", 1)
    assert slow["seconds"] >= 0.1
    inside.send(b"HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n")
    message = agent.hear()
    assert (message["op"], message["request"], message["status"]) == ("answered", 1, 503)
    ended = proxy.events(EventKind.ANSWER_ENDED)[0]
    assert message["seq"] == ended.seq


def test_what_nobody_could_hear_is_told_to_the_next_agent_once(proxy: RunningProxy, service: PlayedService):
    """As when requests fail before the agent has connected, or while it is replaced."""
    before = time.time_ns()
    client = proxy.client()
    client.send(GET)
    inside = service.accept()
    inside.expect(GET)
    failed = b"HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n"
    inside.send(failed)
    client.expect(failed)
    (message,) = proxy.agent().unheard
    assert (message["op"], message["request"], message["status"]) == ("answered", 1, 503)
    assert before < message["wall_ns"] < time.time_ns()
    assert proxy.agent().unheard == []


def test_a_client_slow_to_send_is_no_hang_of_the_service(
    start_proxy: Callable[..., RunningProxy], service: PlayedService
):
    proxy = start_proxy(service.port, "--hang-after", "0.05")
    agent, slow, quick = proxy.agent(), proxy.client(), proxy.client()
    slow.send(b"POST / HTTP/1.1\r\nContent-Length: 9\r\n\r\n")
    service.accept()
    quick.send(GET)
    service.accept()
    assert agent.hear()["request"] == 2  # later than the slow one, and yet the first to be told of
    assert agent.ask("status")["in_flight"] == 2
