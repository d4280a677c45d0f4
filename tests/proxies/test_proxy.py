"""What passes the proxy, byte for byte, and what it writes down of it. The service is played by the test."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection

from relive.recording.events import EventKind
from relive.recording.exchanges import ExchangeEnd
from relive.recording.grpc import GrpcStatus

from .conftest import GET, OK, TIMEOUT_SECONDS, PlayedService, RunningProxy, Wire

POST = b"POST /p HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n"


def test_a_request_and_its_answer_pass_unchanged_and_are_recorded(
    proxy: RunningProxy, service: PlayedService
):
    client = proxy.client()
    client.send(POST + b"hello")
    inside = service.accept()
    inside.expect(POST + b"hello")
    inside.send(OK)
    client.expect(OK)
    proxy.stop()
    exchange = proxy.exchange(1)
    assert (exchange.method, exchange.target, exchange.status) == ("POST", "/p", 200)
    assert exchange.ended is ExchangeEnd.ANSWERED
    assert exchange.request_bytes() == POST + b"hello"
    assert exchange.answer_head + exchange.raw_answer_body() == OK
    assert exchange.local_port == proxy.events(EventKind.CONNECTION_OPENED)[0].fields["local_port"]


def test_the_service_sees_no_connection_before_the_first_byte(proxy: RunningProxy, service: PlayedService):
    idle, busy = proxy.client(), proxy.client()
    busy.send(GET)
    service.accept().expect(GET)
    service.listener.setblocking(False)
    with pytest.raises(BlockingIOError):
        service.listener.accept()
    idle.close()


@pytest.mark.parametrize("service_first", [False, True])
def test_streams_of_http2_are_requests_and_pass_unchanged(
    proxy: RunningProxy, service: PlayedService, *, service_first: bool
) -> None:
    """GIVEN two calls of gRPC side by side, of which one fails, WHEN a commit comes before the answers, THEN both are open."""
    ask, answer = (
        H2Connection(H2Configuration(client_side=True)),
        H2Connection(H2Configuration(client_side=False)),
    )
    client = proxy.client()
    ask.initiate_connection()
    answer.initiate_connection()
    if service_first:  # a silent client is connected, for a service that may have to begin
        inside = service.accept()
        settings = answer.data_to_send()
        inside.send(settings)
        client.expect(settings)
        ask.receive_data(settings)
    for stream in (1, 3):
        head = [(":method", "POST"), (":path", f"/{stream}"), (":scheme", "http"), (":authority", "x")]
        ask.send_headers(stream, head)
        ask.send_data(stream, b"asked", end_stream=True)
    asked = ask.data_to_send()
    client.send(asked)
    if not service_first:
        inside = service.accept()
    inside.expect(asked)
    answer.receive_data(asked)
    agent = proxy.agent()
    closed = agent.ask("close")
    assert [one["request"] for one in closed["connections"]] == [1, 2]
    agent.ask("open", commit=None)
    for stream, code in ((3, "13"), (1, "0")):
        answer.send_headers(stream, [(":status", "200"), ("content-type", "application/grpc")])
        answer.send_headers(stream, [("grpc-status", code)], end_stream=True)
    told = answer.data_to_send()
    inside.send(told)
    client.expect(told)
    message = agent.hear()
    assert (message["op"], message["request"], message["grpc"]) == ("answered", 2, 13)
    proxy.stop()
    one, other = proxy.exchange(1), proxy.exchange(2)
    assert (one.target, one.grpc, other.target, other.grpc) == ("/1", GrpcStatus(0), "/3", GrpcStatus(13))
    assert one.ended is other.ended is ExchangeEnd.ANSWERED
    assert one.is_http2


def test_pipelined_requests_are_told_apart(proxy: RunningProxy, service: PlayedService):
    client = proxy.client()
    head = b"HEAD /h HTTP/1.1\r\n\r\n"
    client.send(GET + head + POST + b"hello" + GET)
    inside = service.accept()
    inside.expect(GET + head + POST + b"hello" + GET)
    answers = OK + b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n" + b"HTTP/1.1 204 No Content\r\n\r\n" + OK
    inside.send(answers)
    client.expect(answers)
    proxy.stop()
    assert [proxy.exchange(n).method for n in (1, 2, 3, 4)] == ["GET", "HEAD", "POST", "GET"]
    assert [proxy.exchange(n).raw_answer_body() for n in (1, 2, 3, 4)] == [b"ok", b"", b"", b"ok"]


def test_chunked_bodies_pass_raw_and_are_decoded_on_reading(proxy: RunningProxy, service: PlayedService):
    client = proxy.client()
    request = (
        b"POST /c HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\n2\r\nde\r\n0\r\nT: 1\r\n\r\n"
    )
    client.send(request)
    inside = service.accept()
    inside.expect(request)
    inside.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nxy\r\n0\r\n\r\n")
    client.expect(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nxy\r\n0\r\n\r\n")
    proxy.stop()
    exchange = proxy.exchange(1)
    assert exchange.request_body() == b"abcde"
    assert exchange.answer_body() == b"xy"
    assert exchange.request_bytes() == request


def test_100_continue_reaches_the_client_before_it_sends_its_body(
    proxy: RunningProxy, service: PlayedService
):
    client = proxy.client()
    head = POST[:-2] + b"Expect: 100-continue\r\n\r\n"
    client.send(head)
    inside = service.accept()
    inside.expect(head)
    inside.send(b"HTTP/1.1 100 Continue\r\n\r\n")
    client.expect(b"HTTP/1.1 100 Continue\r\n\r\n")
    client.send(b"hello")
    inside.expect(b"hello")
    inside.send(OK)
    client.expect(OK)
    proxy.stop()
    assert proxy.exchange(1).interim_heads == [b"HTTP/1.1 100 Continue\r\n\r\n"]
    assert proxy.exchange(1).status == 200


def test_a_slow_head_reaches_the_service_only_when_whole(proxy: RunningProxy, service: PlayedService):
    client = proxy.client()
    for byte in GET[:-1]:
        client.send(bytes([byte]))
    inside = service.accept()
    assert inside.is_silent()
    client.send(GET[-1:])
    inside.expect(GET)


def test_an_answer_that_lasts_until_close(proxy: RunningProxy, service: PlayedService):
    client = proxy.client()
    client.send(GET)
    inside = service.accept()
    inside.expect(GET)
    inside.send(b"HTTP/1.1 200 OK\r\n\r\nall there is")
    inside.close()
    assert client.rest() == b"HTTP/1.1 200 OK\r\n\r\nall there is"
    proxy.stop()
    assert proxy.exchange(1).ended is ExchangeEnd.ANSWERED
    assert proxy.exchange(1).answer_body() == b"all there is"


def test_half_close_is_passed_on_and_the_answer_still_comes(proxy: RunningProxy, service: PlayedService):
    client = proxy.client()
    client.send(GET)
    client.half_close()
    inside = service.accept()
    assert inside.rest() == GET
    inside.send(OK)
    inside.close()
    assert client.rest() == OK


@pytest.mark.parametrize("how", ["close", "reset"])
def test_a_client_that_leaves_is_seen_by_the_service(proxy: RunningProxy, service: PlayedService, how: str):
    client = proxy.client()
    client.send(GET)
    inside = service.accept()
    inside.expect(GET)
    getattr(client, how)()
    if how == "close":
        assert inside.rest() == b""
        inside.close()
    else:
        with pytest.raises(ConnectionResetError):
            inside.rest()
    proxy.wait_for(EventKind.REQUEST_ABANDONED)
    proxy.wait_for(EventKind.CONNECTION_CLOSED)
    assert proxy.exchange(1).ended is ExchangeEnd.ABANDONED


@pytest.mark.parametrize(("how", "sent"), [("closed", b""), ("closed", OK[:-1]), ("reset", OK[:-1])])
def test_a_service_that_ends_early_breaks_the_answer(
    proxy: RunningProxy, service: PlayedService, how: str, sent: bytes
):
    agent = proxy.agent()
    client = proxy.client()
    client.send(GET)
    inside = service.accept()
    inside.expect(GET)
    if sent:
        inside.send(sent)
        client.expect(sent)
    if how == "reset":
        inside.reset()
        with pytest.raises(ConnectionResetError):
            client.rest()
    else:
        inside.close()
        assert client.rest() == b""
    message = agent.hear()
    assert (message["op"], message["request"], message["how"], message["reused"]) == ("broken", 1, how, 0)
    assert proxy.exchange(1).ended is ExchangeEnd.BROKEN
    assert proxy.exchange(1).how == how


def test_an_answer_before_the_end_of_an_upload_reaches_its_client(
    proxy: RunningProxy, service: PlayedService
):
    """GIVEN a service that refuses an upload from its head and closes, which resets the connection, as bytes are left unread
    THEN the client has the answer, and nobody takes it for a failure.
    """
    refusal = b"HTTP/1.1 413 Content Too Large\r\nConnection: close\r\nContent-Length: 2\r\n\r\nno"
    agent = proxy.agent()
    for _ in range(5):
        client = proxy.client()
        client.send(b"POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 8000000\r\n\r\n" + bytes(1 << 16))
        inside = service.accept()
        inside.receive(1)
        inside.send(refusal)
        inside.close()
        client.sock.setblocking(False)
        with contextlib.suppress(OSError):  # it takes no more
            for _ in range(100):
                client.sock.send(bytes(1 << 16))
        client.sock.settimeout(TIMEOUT_SECONDS)
        got = b""
        with contextlib.suppress(ConnectionResetError):
            while chunk := client.receive():
                got += chunk
        assert got == refusal
    agent.ask("status")


def test_an_upgrade_becomes_a_stream_both_ways(proxy: RunningProxy, service: PlayedService):
    client = proxy.client()
    ask = b"GET /ws HTTP/1.1\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n\r\n"
    client.send(ask + b"early")
    inside = service.accept()
    inside.expect(ask)
    assert inside.is_silent()  # what follows has no meaning before the answer
    switch = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n"
    inside.send(switch + b"down")
    client.expect(switch + b"down")
    inside.expect(b"early")
    client.send(b"GET is no request here")
    inside.expect(b"GET is no request here")
    client.close()
    assert inside.rest() == b""
    inside.close()
    closed = proxy.wait_for(EventKind.CONNECTION_CLOSED)[0].fields
    assert (closed["up_bytes"], closed["down_bytes"]) == (27, 4)
    assert proxy.exchange(1).ended is ExchangeEnd.UPGRADED
    assert (
        b"".join(e.data for e in proxy.events(EventKind.STREAM_TO_SERVICE)) == b"earlyGET is no request here"
    )


def test_a_refused_upgrade_goes_on_with_messages(proxy: RunningProxy, service: PlayedService):
    client = proxy.client()
    ask = b"GET /ws HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n"
    client.send(ask + GET)
    inside = service.accept()
    inside.expect(ask)
    inside.send(OK)
    inside.expect(GET)
    inside.send(OK)
    client.expect(OK + OK)


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"POST / HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01", 400),
        (b"GET / HTTP/2.0\r\n\r\n", 505),
        (b"GET / HTTP/1.1\r\nX: " + b"y" * 200_000, 431),
    ],
)
def test_what_a_service_might_read_in_two_ways_is_refused(
    proxy: RunningProxy, service: PlayedService, request_bytes: bytes, status: int
):
    client = proxy.client()
    client.send(GET + request_bytes)
    inside = service.accept()
    inside.expect(GET)
    inside.send(OK)
    answer = client.rest()
    assert answer.startswith(OK)
    assert answer[len(OK) :].startswith(b"HTTP/1.1 %d " % status)
    assert json.loads(answer.rpartition(b"\r\n\r\n")[2])["code"] == "request-refused"
    assert inside.rest() == b""
    assert proxy.notes("refused")


def test_what_is_not_http_still_reaches_the_client(proxy: RunningProxy, service: PlayedService):
    client = proxy.client()
    client.send(GET)
    inside = service.accept()
    inside.expect(GET)
    inside.send(b"SSH-2.0-nonsense\n\nand more")
    client.expect(b"SSH-2.0-nonsense\n\nand more")
    inside.close()
    assert client.rest() == b""
    assert proxy.notes("unframed")
    assert (
        b"".join(e.data for e in proxy.events(EventKind.STREAM_TO_CLIENT)) == b"SSH-2.0-nonsense\n\nand more"
    )


def test_a_full_queue_of_the_service_is_waited_for(start_proxy: Callable[..., RunningProxy]):
    """As a client waits: the kernel drops what does not fit, and sends it again a second later and more."""
    narrow = socket.create_server(("127.0.0.1", 0), backlog=1)
    narrow.settimeout(TIMEOUT_SECONDS)
    proxy = start_proxy(narrow.getsockname()[1])
    first = proxy.client()
    first.send(GET)
    answer(narrow)
    first.expect(OK)  # it is known to listen
    others = [proxy.client() for _ in range(4)]
    for client in others:
        client.send(GET)
    agent = proxy.agent()
    while not is_dropping_connections(narrow):
        pass
    assert agent.ask("status")["broken"] == 0
    for _ in others:
        answer(narrow)
    for client in others:
        client.expect(OK)
    assert agent.ask("status")["broken"] == 0
    narrow.close()


def answer(listener: socket.socket) -> None:
    with listener.accept()[0] as sock:
        wire = Wire(sock)
        wire.expect(GET)
        wire.send(OK)


def is_dropping_connections(listener: socket.socket) -> bool:
    """Two connections have begun in vain at its port (state SYN_SENT: a SYN is answered at once on this host, or dropped)."""
    wanted = f":{listener.getsockname()[1]:04X}"
    lines = Path("/proc/self/net/tcp").read_text().splitlines()[1:]
    return sum(one[2].endswith(wanted) and one[3] == "02" for one in map(str.split, lines)) == 2


OTHER_PROTOCOLS = {
    "redis": (b"*1\r\n$4\r\nPING\r\n", b"+PONG\r\n"),
    "postgresql": (b"\0\0\0\x08\x04\xd2\x16\x2f", b"N"),
    "tls": (b"\x16\x03\x01\0\x05hello", b"\x16\x03\x03\0\x05hello"),
}


def test_what_is_no_http2_behind_its_beginning_passes_as_bytes(
    proxy: RunningProxy, service: PlayedService
) -> None:
    client = proxy.client()
    client.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
    inside = service.accept()
    inside.expect(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
    inside.send(b"\0\0\0\4\0\0\0\0\0")
    client.expect(b"\0\0\0\4\0\0\0\0\0")
    client.send(b"GET / HTTP/1.1\r\n")
    inside.expect(b"GET / HTTP/1.1\r\n")
    inside.send(b"what?")
    client.expect(b"what?")
    client.half_close()
    assert inside.rest() == b""
    inside.close()
    proxy.wait_for(EventKind.CONNECTION_CLOSED)
    assert [one.data for one in proxy.events(EventKind.STREAM_TO_CLIENT)] == [b"what?"]


@pytest.mark.parametrize(("asked", "said"), OTHER_PROTOCOLS.values(), ids=OTHER_PROTOCOLS)
def test_what_is_not_http_is_passed_on(
    proxy: RunningProxy, service: PlayedService, asked: bytes, said: bytes
):
    client = proxy.client()
    client.send(asked)
    inside = service.accept()
    inside.expect(asked)
    inside.send(said)
    client.expect(said)
    client.send(b"GET / HTTP/1.1\r\n")  # whatever comes now
    inside.expect(b"GET / HTTP/1.1\r\n")
    client.half_close()
    assert inside.rest() == b""
    inside.send(b"last")
    inside.close()
    assert client.rest() == b"last"
    closed = proxy.wait_for(EventKind.CONNECTION_CLOSED)[0].fields
    assert (closed["up_bytes"], closed["down_bytes"]) == (len(asked) + 16, len(said) + 4)
    assert "requests are not told apart" in proxy.notes("unframed")[0]
    assert not proxy.events(EventKind.REQUEST_STARTED)
    sent = proxy.events(EventKind.STREAM_TO_SERVICE)
    assert b"".join(one.data for one in sent) == asked + b"GET / HTTP/1.1\r\n" and sent[-1].fields["ended"]
    assert b"".join(one.data for one in proxy.events(EventKind.STREAM_TO_CLIENT)) == said + b"last"


def test_a_service_that_speaks_first_is_heard(proxy: RunningProxy, service: PlayedService):
    """Of SMTP, MySQL, SSH the client says nothing before; from the second connection on no silence is waited for."""
    for _ in range(2):
        client = proxy.client()
        inside = service.accept()
        inside.send(b"220 mail.example\r\n")
        client.expect(b"220 mail.example\r\n")
        client.send(b"EHLO me\r\n")
        inside.expect(b"EHLO me\r\n")
        inside.close()
        assert client.rest() == b""
    assert proxy.agent().ask("status")["unframed"] == 2
    assert len(proxy.notes("unframed")) == 1


def test_a_silent_client_of_unknown_kind_may_be_one_of_http(proxy: RunningProxy, service: PlayedService):
    client = proxy.client()
    inside = service.accept()  # as it would without Relive
    client.send(GET)
    inside.expect(GET)
    inside.send(OK)
    client.expect(OK)
    assert proxy.exchange(1).ended is ExchangeEnd.ANSWERED


def test_a_first_line_without_end_is_passed_on(proxy: RunningProxy, service: PlayedService):
    client = proxy.client()
    client.send(b"QUIT")
    client.half_close()
    inside = service.accept()
    assert inside.rest() == b"QUIT"
    inside.close()
    assert client.rest() == b""


def test_requests_wait_for_a_service_that_is_still_starting(start_proxy: Callable[..., RunningProxy]):
    late = socket.socket()
    late.bind(("127.0.0.1", 0))
    late.settimeout(10)
    proxy = start_proxy(late.getsockname()[1])
    client = proxy.client()
    client.send(GET)
    agent = proxy.agent()
    while agent.ask("status")["connections"] != 1:
        pass
    late.listen()
    inside = Wire(late.accept()[0])
    inside.expect(GET)
    inside.close()
    late.close()


def test_a_service_that_is_gone_is_answered_for_with_its_cause(proxy: RunningProxy, service: PlayedService):
    first = proxy.client()
    first.send(GET)
    inside = service.accept()
    inside.expect(GET)
    inside.send(OK)
    first.expect(OK)
    service.close()
    agent = proxy.agent()
    client = proxy.client()
    client.send(GET)
    head, _, body = client.rest().partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 502 ")
    assert json.loads(body)["cause"] == "Connection refused"
    assert agent.hear()["how"] == "refused"
    assert proxy.exchange(2).by_relive
    assert proxy.exchange(2).local_port is None


def test_sizes_of_log_files_are_recorded_with_each_request(
    start_proxy: Callable[..., RunningProxy], service: PlayedService, tmp_path: Path
):
    log = tmp_path / "out.log"
    proxy = start_proxy(service.port, "--log", str(log))
    client = proxy.client()
    client.send(GET)
    inside = service.accept()
    inside.expect(GET)
    log.write_text("a line\n")
    inside.send(OK)
    client.expect(OK)
    assert proxy.exchange(1).log_offsets_before == {}
    assert proxy.exchange(1).log_offsets_after == {str(log): 7}


def test_a_body_beyond_the_limit_is_cut_and_says_so(
    start_proxy: Callable[..., RunningProxy], service: PlayedService
):
    import hashlib

    from relive.errors import RequestTruncated

    proxy = start_proxy(service.port, "--body-limit", "3")
    client = proxy.client()
    client.send(POST + b"hello")
    inside = service.accept()
    inside.expect(POST + b"hello")
    inside.send(OK)
    client.expect(OK)
    exchange = proxy.exchange(1)
    assert (exchange.raw_request_body(), exchange.request_cut) == (b"hel", 2)
    assert exchange.request_blake2b == hashlib.blake2b(b"hello", digest_size=32).hexdigest()
    with pytest.raises(RequestTruncated, match="2 bytes"):
        exchange.request_bytes()


def test_a_large_stream_takes_bounded_memory(proxy: RunningProxy, service: PlayedService):
    """256 MiB to a client that reads, and as much from one whose service does not read at first."""
    size, block = 256 * 1024 * 1024, bytes(1024 * 1024)
    client = proxy.client()
    client.send(b"POST /big HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % size)
    inside = service.accept()
    inside.receive()

    def drain(wire: Wire) -> int:
        buffer, left = bytearray(1024 * 1024), size
        while left and (count := wire.sock.recv_into(buffer, min(left, len(buffer)))):
            left -= count
        return left

    for sender, receiver in ((client, inside), (inside, client)):
        if sender is inside:
            inside.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size)
            client.receive(len(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size))
        thread = threading.Thread(
            target=lambda wire=sender: [wire.send(block) for _ in range(size // len(block))]
        )
        thread.start()
        assert drain(receiver) == 0
        thread.join()
    peak = next(
        int(line.split()[1])
        for line in Path(f"/proc/{proxy.process.pid}/status").read_text().splitlines()
        if line.startswith("VmHWM")
    )
    assert peak < 128 * 1024  # [KiB]
    proxy.wait_for(EventKind.ANSWER_ENDED)
    assert proxy.exchange(1).request_cut == size - 16 * 1024 * 1024


def test_numbers_go_on_after_kill_9(start_proxy: Callable[..., RunningProxy], service: PlayedService):
    """GIVEN a proxy killed with a request in flight WHEN one is started on the same recording THEN numbers rise."""
    first = start_proxy(service.port)
    client = first.client()
    for _ in range(3):
        client.send(GET)
        inside = service.wires[0] if service.wires else service.accept()
        inside.expect(GET)
        inside.send(OK)
        client.expect(OK)
    client.send(GET)
    inside.expect(GET)
    first.kill()
    second = start_proxy(service.port)
    client = second.client()
    client.send(GET)
    inside = service.accept()
    inside.expect(GET)
    inside.send(OK)
    client.expect(OK)
    assert [event.request for event in second.events(EventKind.REQUEST_STARTED)] == [1, 2, 3, 4, 5]
    assert second.exchange(4).ended is ExchangeEnd.LOST
    assert second.exchange(5).connection == 2


def test_kill_9_under_traffic_leaves_a_recording_that_goes_on(
    start_proxy: Callable[..., RunningProxy], service: PlayedService
):
    """Killed three times while 8 clients send as fast as they can: no number twice, nothing damaged, none made up."""

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=answer_all, args=(service.accept(),), daemon=True).start()

    def answer_all(wire: Wire) -> None:
        with contextlib.suppress(OSError):
            while wire.receive():
                wire.send(OK)

    threading.Thread(target=serve, daemon=True).start()
    answered = 0
    for turn in range(3):
        proxy = start_proxy(service.port)
        counts = [0] * 8

        def load(index: int, proxy: RunningProxy = proxy, counts: list[int] = counts) -> None:
            with contextlib.suppress(OSError, AssertionError):
                client = proxy.client()
                while True:
                    client.send(GET)
                    client.expect(OK)
                    counts[index] += 1

        threads = [threading.Thread(target=load, args=(index,)) for index in range(8)]
        for thread in threads:
            thread.start()
        proxy.wait_for(EventKind.ANSWER_ENDED, answered + 100)
        proxy.kill()
        for thread in threads:
            thread.join()
        answered += sum(counts)
        numbers = [event.request for event in proxy.events(EventKind.REQUEST_STARTED)]
        assert numbers == list(range(1, len(numbers) + 1))
        # Each answer that a client saw was recorded before; at most one a client was recorded and not seen.
        assert answered <= len(proxy.events(EventKind.ANSWER_ENDED)) <= answered + 8 * (turn + 1)


def test_it_ends_with_its_capsule_where_no_agent_ends_it(
    start_proxy: Callable[..., RunningProxy], service: PlayedService
):
    with subprocess.Popen(["sleep", "600"]) as capsule:
        proxy = start_proxy(service.port, "--capsule", str(capsule.pid))
        agent = proxy.agent()
        capsule.kill()
    assert agent.ask("status")["pid"] == proxy.process.pid
    agent.vanish()
    assert proxy.process.wait(TIMEOUT_SECONDS) == 0
