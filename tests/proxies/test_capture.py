"""The recorder beside the way as a process of its own: a service notices nothing of it, and all that it was asked is recorded."""

from __future__ import annotations

import hashlib
import os
import random
import shutil
import signal
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from relive.config import load_settings
from relive.forkserver.starting import start_module
from relive.kernel import procfs
from relive.kernel.portprogram import BEGINNING
from relive.proxies.ingress.options import CAPTURE, RELAY
from relive.proxies.ingress.spool import PacketSpool
from relive.recording.events import Event, EventKind
from relive.recording.exchanges import Exchange, Exchanges
from relive.recording.reader import Recording
from support.waiting import eventually

from .conftest import GET, OK, TIMEOUT_SECONDS, Agent, PlayedService, Wire

RING = 16 << 20  # [bytes]


class RunningCapture:
    """``relive.proxies.ingress.capture`` on a recording of its own."""

    def __init__(self, directory: Path, port: int, *options: str) -> None:
        self.directory, self.control = directory / "recording", directory / "control"
        self.port = port
        self.clients: list[Wire] = []
        self.stderr = (directory / "stderr").open("a+")
        self.process = start_module(
            "relive.proxies.ingress.capture",
            [
                *("--listen", f"127.0.0.1:{port}", "--upstream", f"127.0.0.1:{port}"),
                *("--recording", str(self.directory), "--control", str(self.control)),
                *("--capture", str(load_settings().tools_path / CAPTURE)),
                *("--relay", str(load_settings().tools_path / RELAY), *options),
            ],
            streams=(subprocess.DEVNULL, subprocess.DEVNULL, self.stderr.fileno()),
            may_fork=True,
            patient=True,
        )
        self.agent = eventually(self._reach, "it takes commands")

    def _reach(self) -> Agent | None:
        if self.process.poll() is not None:
            self.stderr.seek(0)
            raise AssertionError(self.stderr.read())
        with socket.socket(socket.AF_UNIX) as probe:
            try:
                probe.connect(str(self.control))
            except OSError:
                return None
        return Agent(self.control)

    def client(self, address: str = "127.0.0.1") -> Wire:
        """A client of the service, which knows nothing of this."""
        self.clients.append(Wire(socket.create_connection((address, self.port))))
        return self.clients[-1]

    def caught_up(self) -> None:
        """All that came before is recorded. What it tells of failures meanwhile is in ``told``."""
        self.agent.say(op="catch-up", id="now")
        self.told = []
        while (said := self.agent.hear()).get("id") != "now":
            self.told.append(said)

    def events(self, *kinds: EventKind) -> list[Event]:
        self.caught_up()
        return [one for one in Recording(self.directory).events() if not kinds or one.kind in kinds]

    def exchanges(self) -> list[Exchange]:
        self.caught_up()
        return list(Exchanges(Recording(self.directory)).begun_in(0, 1 << 60))

    def close(self) -> None:
        for wire in self.clients:
            wire.close()
        self.agent.vanish()
        if self.process.poll() is None:  # else the test has killed it
            os.kill(self.process.pid, signal.SIGTERM)
            assert self.process.wait(TIMEOUT_SECONDS) == 0
        self.stderr.close()


@pytest.fixture
def played() -> Iterator[PlayedService]:
    made = PlayedService()
    yield made
    made.close()


@pytest.fixture
def capture(tmp_path: Path, played: PlayedService) -> Iterator[RunningCapture]:
    made = RunningCapture(tmp_path, played.port)
    yield made
    made.close()


def test_a_request_is_recorded_with_the_client_that_the_service_sees(
    played: PlayedService, capture: RunningCapture
) -> None:
    client = capture.client()
    served = played.accept()
    client.send(GET)
    served.expect(GET)
    served.send(OK)
    client.expect(OK)
    (one,) = capture.exchanges()
    assert (one.request_head, one.status, one.answer_body()) == (GET, 200, b"ok")
    assert one.client == "{}:{}".format(*client.sock.getsockname())


def test_what_a_reader_that_does_not_run_cannot_take_waits_in_files(
    played: PlayedService, capture: RunningCapture
) -> None:
    """GIVEN a reader that keeps up, THEN packets are in no file. WHEN it is stopped amid thrice the ring, THEN nothing is lost."""
    client, served, much = capture.client(), played.accept(), 3 * RING
    packets = capture.directory.parent / "packets"
    # What is on its way was in the ring and is not received yet: a kernel lets that grow to 32 MiB, more than the ring.
    served.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)

    def taken() -> int:
        """Bytes of packets in blocks that were released or can be: ``struct progress`` of ``native/capture.c``."""
        ready, ready_bytes, released = struct.unpack_from("=3Q", (packets / "progress").read_bytes())
        return int(ready_bytes) - (ready - released) * (1 << 20)

    def asks(body: bytes, *, stops: bool) -> None:
        head = b"POST /much HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % len(body)
        sending = threading.Thread(target=client.send, args=(head + body,))
        sending.start()
        left = len(head) + len(body)
        begun, is_stopped = taken(), False
        while left > 0:
            left -= len(served.receive(1 << 20))
            if stops and not is_stopped and left < much * 3 // 4:
                os.kill(capture.process.pid, signal.SIGSTOP)
                is_stopped = True
            if stops:  # a busy host must not make it lose packets: they come as they can be taken
                least = begun + len(body) - left - RING // 2
                eventually(lambda: taken() >= least, "what has come was taken from the kernel")  # noqa: B023
        sending.join(TIMEOUT_SECONDS)
        served.send(OK)
        client.expect(OK)

    for size in (10, 1 << 20):
        asks(bytes(size), stops=False)
        capture.caught_up()
    assert not list(packets.glob("*.packets"))
    body = random.Random(1).randbytes(1 << 20) * (much >> 20)
    try:
        asks(body, stops=True)
        eventually(lambda: list(packets.glob("*.packets")), "they are in a file")
    finally:
        os.kill(capture.process.pid, signal.SIGCONT)
    asks(b"after", stops=False)
    one, after = capture.exchanges()[2:]
    assert hashlib.blake2b(body, digest_size=32).hexdigest() == one.request_blake2b
    assert one.ended.value == after.ended.value == "answered"
    status = capture.agent.ask("status")
    assert (status["gaps"], status["packets_lost"], status["waiting"]) == (0, 0, 0)


def test_a_failing_answer_is_told(played: PlayedService, capture: RunningCapture) -> None:
    client = capture.client()
    served = played.accept()
    client.send(GET)
    served.expect(GET)
    served.send(b"HTTP/1.1 503 Not now\r\nContent-Length: 0\r\n\r\n")
    capture.caught_up()
    assert [(one["op"], one["request"], one["status"]) for one in capture.told] == [("answered", 1, 503)]


def test_it_records_by_both_families(tmp_path: Path) -> None:
    with socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True) as listener:
        port = listener.getsockname()[1]
        capture = RunningCapture(tmp_path, port, "--upstream", f"0.0.0.0:{port}")
        try:
            for address in ("127.0.0.1", "::1"):
                client = capture.client(address)
                served = Wire(listener.accept()[0])
                capture.clients.append(served)
                client.send(GET)
                served.expect(GET)
                served.send(OK)
                client.expect(OK)
            clients = [one.client for one in capture.exchanges()]
            assert [str(one).rpartition(":")[0] for one in clients] == ["127.0.0.1", "::1"]
        finally:
            capture.close()


class Echo(BaseHTTPRequestHandler):
    """Answers with what was sent, and as much again."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", str(2 * len(body)))
        self.end_headers()
        self.wfile.write(body * 2)

    def log_message(self, format: str, *values: object) -> None:
        pass


def test_under_load_it_is_complete_to_the_byte(tmp_path: Path) -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Echo)
    port = server.server_address[1]
    threading.Thread(target=server.serve_forever, daemon=True).start()
    capture = RunningCapture(tmp_path, port)
    sent: dict[bytes, bytes] = {}

    def ask(client: int) -> None:
        wire = Wire(socket.create_connection(("127.0.0.1", port)))
        for number in range(40):
            body = bytes((client, number)) * (3 if number % 8 else 40_000)
            head = f"POST /{client}/{number} HTTP/1.1\r\nContent-Length: {len(body)}\r\n\r\n".encode()
            wire.send(head + body)
            got = b""
            while not got.endswith(body * 2):
                got += wire.receive()
            sent[head + body] = got
        wire.close()

    try:
        threads = [threading.Thread(target=ask, args=(client,)) for client in range(4)]
        for one in threads:
            one.start()
        for one in threads:
            one.join(60)
        found = capture.exchanges()
        assert len(found) == len(sent) == 160
        for one in found:
            assert one.answer_head is not None
            assert sent[one.request_bytes()] == one.answer_head + one.answer_body()
        assert capture.agent.ask("status")["gaps"] == 0
    finally:
        capture.close()
        server.shutdown()
        server.server_close()


def test_of_a_long_answer_the_beginning_is_recorded(tmp_path: Path, played: PlayedService) -> None:
    """GIVEN a limit for answers, WHEN one is longer, THEN its beginning and size are recorded; of requests and failures all is."""
    limit, size = 64 << 10, 1 << 20
    body = random.Random(2).randbytes(size)
    capture = RunningCapture(tmp_path, played.port, "--answer-limit", str(limit))
    try:
        client, served = capture.client(), played.accept()
        for status in ("200 OK", "500 Oh", "201 Made"):
            asked = b"POST /much HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % size + body
            head = f"HTTP/1.1 {status}\r\nContent-Length: {size}\r\n\r\n".encode()
            for sender, receiver, data in ((client, served, asked), (served, client, head + body)):
                sending = threading.Thread(target=sender.send, args=(data,))
                sending.start()
                receiver.expect(data)
                sending.join(TIMEOUT_SECONDS)
        found = capture.exchanges()
        assert [one.status for one in found] == [200, 500, 201]
        for one in found:
            assert one.raw_request_body() == body
            kept = len(one.answer_body())
            assert one.answer_body() == body[:kept] and one.answer_cut == size - kept
            assert kept == size if one.status == 500 else kept == BEGINNING
        assert capture.agent.ask("status")["gaps"] == 0
    finally:
        capture.close()


def test_where_the_kernel_refuses_the_filter_all_is_taken(
    tmp_path: Path, played: PlayedService, capfd: pytest.CaptureFixture[str]
) -> None:
    with open(os.devnull) as no_program:  # noqa: PTH123 - a name, not a path
        spool = PacketSpool(
            load_settings().tools_path / CAPTURE, tmp_path / "packets", played.port, takes=no_program.fileno()
        )
    try:
        eventually(lambda: spool.until, "packets are taken")
        client = Wire(socket.create_connection(("127.0.0.1", played.port)))
        eventually(lambda: any(block.packets for block in spool.blocks()), "its packets are there")
        client.close()
    finally:
        spool.close()
    assert "long answers are recorded as a whole: SO_ATTACH_BPF" in capfd.readouterr().err


def test_a_conversation_that_stood_before_is_recorded_from_its_next_turn_on(
    tmp_path: Path, played: PlayedService
) -> None:
    """GIVEN a connection before the recorder, WHEN both have said something to each other, THEN what follows is recorded."""
    client = Wire(socket.create_connection(("127.0.0.1", played.port)))
    served = played.accept()

    def turn(number: int) -> None:
        for sender, receiver in ((client, served), (served, client)):
            sender.send(b"\0said %d" % number)
            receiver.expect(b"\0said %d" % number)

    turn(0)
    capture = RunningCapture(tmp_path, played.port)
    try:
        for number in range(1, 4):
            turn(number)
        up, down = EventKind.STREAM_TO_SERVICE, EventKind.STREAM_TO_CLIENT
        said = [(one.kind, one.data) for one in capture.events(up, down)]
        assert said == [(kind, b"\0said %d" % number) for number in (2, 3) for kind in (up, down)]
        (opened,) = capture.events(EventKind.CONNECTION_OPENED)
        assert (opened.fields["local_port"], opened.fields["from_middle"]) == (
            client.sock.getsockname()[1],
            True,
        )
        assert capture.agent.ask("status")["gaps"] == 0
    finally:
        client.close()
        capture.close()


def test_what_it_could_not_take_is_said(played: PlayedService, capture: RunningCapture) -> None:
    """GIVEN a recorder that does not run for a while, WHEN more comes than fits into its ring, THEN the recording says so."""
    client = capture.client()
    served = played.accept()
    client.send(GET)
    served.expect(GET)
    served.send(OK)
    client.expect(OK)
    capture.caught_up()
    taker = capture.agent.ask("status")["capture"]
    much = 2 * RING
    os.kill(taker, signal.SIGSTOP)
    try:
        client.send(b"POST /much HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % much)
        sending = threading.Thread(target=client.send, args=(bytes(much),))
        sending.start()
        while much > 0:
            much -= len(served.receive(1 << 20))
        sending.join(TIMEOUT_SECONDS)
    finally:
        os.kill(taker, signal.SIGCONT)
    served.send(OK)
    client.expect(OK)

    def is_heard() -> bool:  # the ring may still have been full a moment ago
        client.send(GET.replace(b"/a", b"/after"))
        served.send(OK)
        client.expect(OK)
        return [one.ended.value for one in capture.exchanges() if one.target == "/after"][-1:] == ["answered"]

    eventually(is_heard, "what comes later is recorded")
    notes = [one.fields for one in capture.events(EventKind.NOTE)]
    assert any(one["about"] == "capture" and one["lost"] > 0 for one in notes)
    ended = {one.target: one.ended.value for one in capture.exchanges()}
    assert (ended["/a"], ended["/much"], ended["/after"]) == ("answered", "lost", "answered")
    assert capture.agent.ask("status")["packets_lost"] > 0


@pytest.mark.parametrize("part", ["taker", "reader"])
def test_the_service_notices_nothing_of_its_death(played: PlayedService, tmp_path: Path, part: str) -> None:
    capture = RunningCapture(tmp_path, played.port)
    client = capture.client()
    served = played.accept()
    taker = capture.agent.ask("status")["capture"]
    os.kill(taker if part == "taker" else capture.process.pid, signal.SIGKILL)
    client.send(GET)
    served.expect(GET)
    served.send(OK)
    client.expect(OK)
    # One without the other ends: who keeps them running starts both again.
    eventually(lambda: capture.process.poll() is not None, "the reader ends")
    eventually(lambda: procfs.read_stat(taker) is None, "what takes packets ends")
    again = RunningCapture(tmp_path, played.port)
    client.send(GET)
    served.expect(GET)
    served.send(OK)
    eventually(
        lambda: [one.ended.value for one in again.exchanges()] == ["answered"],
        "the connection is found again",
    )
    assert Exchanges(Recording(again.directory)).gaps_in(1, 1 << 60) == 1  # while there was none
    assert again.agent.ask("status")["gaps"] == 1
    again.close()
    capture.close()


def test_a_commit_that_nobody_finishes_is_given_up(played: PlayedService, capture: RunningCapture) -> None:
    """GIVEN an agent that has said that a commit begins, WHEN it goes away, THEN recording goes on."""
    other = Agent(capture.control)
    assert other.ask("close", at=time.time_ns())["op"] == "closed"
    assert capture.agent.ask("close", at=time.time_ns())["error"]["code"] == "gate-closed"
    assert capture.agent.ask("open", commit=None)["error"]["code"] == "gate-not-closed"
    client = capture.client()
    served = played.accept()
    client.send(GET)
    served.expect(GET)
    other.vanish()
    eventually(lambda: len(capture.exchanges()) == 1, "what came meanwhile is recorded")


def test_a_commit_is_placed_before_what_came_after_it(played: PlayedService, capture: RunningCapture) -> None:
    client = capture.client()
    served = played.accept()
    client.send(GET)
    served.expect(GET)
    assert capture.agent.ask("close", at=time.time_ns())["op"] == "closed"
    still = time.time_ns()
    served.send(OK)
    client.expect(OK)
    opened = capture.agent.ask("open", commit="c", at=still, crossed=[])
    assert [one["request"] for one in opened["connections"]] == [1]
    kinds = [one.kind.value for one in capture.events()]
    assert kinds[kinds.index("commit-taken") - 1] == "request-ended"
    assert kinds[-1] == "answer-ended"


def test_who_catches_up_while_a_commit_is_placed_has_what_came_after_it(
    played: PlayedService, capture: RunningCapture
) -> None:
    """GIVEN a commit that is being placed, WHEN a request comes and an agent catches up, THEN it has it."""
    assert capture.agent.ask("close", at=time.time_ns())["op"] == "closed"
    still = time.time_ns()
    client = capture.client()
    played.accept()
    client.send(GET)
    other = Agent(capture.control)
    other.say(op="catch-up", id="now")
    assert other.ask("status")["op"] == "status", (
        "the wish to catch up was heard while the commit has no place"
    )
    assert capture.agent.ask("open", commit="c", at=still, crossed=[])["op"] == "opened"
    while other.hear().get("id") != "now":
        pass
    kinds = [one.kind.value for one in Recording(capture.directory).events()]
    assert kinds[kinds.index("commit-taken") :][-2:] == ["request-started", "request-ended"]
    other.vanish()


@pytest.mark.parametrize("message", [{"op": "what"}, {"op": "close"}, {"op": "close", "at": "x"}])
def test_what_it_does_not_understand_it_refuses(capture: RunningCapture, message: dict[str, object]) -> None:
    reply = capture.agent.ask(str(message.pop("op")), **message)
    assert reply["error"]["code"] in ("unknown-op", "bad-message")


def test_it_ends_with_its_capsule_where_no_agent_ends_it(played: PlayedService, tmp_path: Path) -> None:
    """GIVEN an agent that has ended, as when its directory is removed, WHEN the service ends, THEN so does the recorder."""
    with subprocess.Popen(["sleep", "600"]) as service:
        capture = RunningCapture(tmp_path, played.port, "--capsule", str(service.pid))
        capture.agent.vanish()
        shutil.rmtree(capture.directory)
        capture.control.unlink()
        assert capture.process.poll() is None
        service.kill()
    assert capture.process.wait(TIMEOUT_SECONDS) == 0
    capture.stderr.close()


def test_it_answers_an_agent_that_is_there_when_its_capsule_has_ended(
    played: PlayedService, tmp_path: Path
) -> None:
    with subprocess.Popen(["sleep", "600"]) as service:
        capture = RunningCapture(tmp_path, played.port, "--capsule", str(service.pid))
        service.kill()
    assert capture.exchanges() == []
    capture.close()
