"""A commit of a service with connections to others open: in a branch they go on, and say what they said.

The services run without the recorder in Python processes, so that all answers come over the network.
"""

from __future__ import annotations

import itertools
import json
import os
import select
import signal
import socket
import socketserver
import struct
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from relive.recording.events import Event, EventKind
from relive.recording.reader import Recording
from relive.recording.writer import RecordingWriter
from relive.sandbox.branch import list_branches
from support.ports import free_port
from support.waiting import LIMIT, eventually

from .harness import PYTHON, SERVICES, Branch, Relive, ask
from .test_egress import https
from .test_replay import ask as ask_once

__all__ = ["https"]


class Lines(socketserver.StreamRequestHandler):
    """A line for each line, with a number that was never given before; "slam" is answered with a reset."""

    numbers = itertools.count(1)

    def handle(self) -> None:
        for line in self.rfile:
            if line == b"slam\n":
                self.request.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                os.close(self.request.detach())
                return
            self.wfile.write(b"%d for %s" % (next(self.numbers), line))


class Web(BaseHTTPRequestHandler):
    """The same as JSON over HTTP."""

    protocol_version = "HTTP/1.1"
    wbufsize = -1
    numbers = itertools.count(1)

    def do_GET(self) -> None:
        self.do_POST()

    def do_POST(self) -> None:
        asked = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        body = json.dumps({"path": self.path, "asked": asked.decode(), "number": next(self.numbers)}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


class _Tcp(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True


class _Http(ThreadingHTTPServer):
    daemon_threads = True


@pytest.fixture
def servers() -> Iterator[dict[str, int]]:
    """A server of lines and one of HTTP."""
    made = {"line": _Tcp(("127.0.0.1", 0), Lines), "httpx": _Http(("127.0.0.1", 0), Web)}
    for server in made.values():
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    yield {name: server.server_address[1] for name, server in made.items()}
    for server in made.values():
        server.shutdown()
        server.server_close()


class Answered:
    """The service behind the proxy, recorded at its border."""

    def __init__(
        self,
        relive: Relive,
        ports: dict[str, int],
        *options: str,
        program: tuple[str, ...] = (),
        **environment: str,
    ) -> None:
        self.relive = relive
        self.inner, self.port = free_port(), free_port()
        answer = relive(
            *("run", "--detach", "--name", "answered", "--every", "start", "--record-egress"),
            *(options or ["--no-recorder"]),
            *("--listen", f"127.0.0.1:{self.port}", "--upstream", str(self.inner), "--"),
            *(program or (str(PYTHON), str(SERVICES / "answered.py"), str(self.inner), json.dumps(ports))),
            *((str(self.inner),) if program else ()),
            environment={"ANSWERED": json.dumps(ports), **environment},
        )
        self.life: Path = relive.settings.capsules / "answered" / answer["life"]
        eventually(lambda: relive.commits("answered"), "the commit at the start")

    def ask(self, path: str) -> str:
        status, body = ask_once(self.port, "GET", path)
        assert status == 200
        return str(body.decode())

    def lose_inside(self, kind: EventKind) -> None:
        """As if the recorder inside had lost its events of that kind."""
        recorded = list(Recording(self.life / "inside").events())
        writer = RecordingWriter(self.life / "lost")
        for event in recorded:
            if event.kind is not kind:
                times = event.mono_ns, event.wall_ns
                writer.append(event.kind, event.connection, event.request, event.data, event.fields, times)
        writer.close()
        (self.life / "inside").rename(self.life / "inside-as-it-was")
        (self.life / "lost").rename(self.life / "inside")

    def rewrite(self, change: Callable[[Event], Event]) -> None:
        """As if something else had been recorded at the border."""
        recorded = list(Recording(self.life / "egress").events())
        writer = RecordingWriter(self.life / "changed")
        for event in map(change, recorded):
            times = event.mono_ns, event.wall_ns
            writer.append(event.kind, event.connection, event.request, event.data, event.fields, times)
        writer.close()
        (self.life / "egress").rename(self.life / "as-it-was")
        (self.life / "changed").rename(self.life / "egress")

    def last_request(self) -> int:
        return max(event.request for event in Recording(self.life / "recording").events())

    def replay(self, commit: str, *options: str) -> tuple[int, dict[str, Any]]:
        words = ("replay", "--request", str(self.last_request()), "--pace", "fast", *options, commit)
        done = self.relive.say(*words)
        return done.returncode, json.loads(done.stdout)


def test_connections_of_a_commit_go_on_where_they_were(relive: Relive, servers: dict[str, int]) -> None:
    """GIVEN a service that asked others before and after a commit, on the same connections
    WHEN the last request is replayed
    THEN the others say in the branch what they said then, though they never say the same twice.

    It was recorded beside its way; in the other tests through a recorder.
    """
    service = Answered(relive, servers, "--no-recorder", "--egress", "beside")
    service.ask("/line/1")
    service.ask("/httpx/2")
    commit = relive("commit", "answered")["id"]
    service.ask("/line/3")
    service.ask("/httpx/4")
    service.ask("/line/5")
    status, result = service.replay(commit)
    (run,) = result["runs"]
    assert status == 0, json.dumps(result, indent=1)
    assert run["verdict"]["kind"] == "reproduced" and run["verdict"]["inside"] == []
    told = run["outcome"]["stubs"]
    assert (told["continued"], told["given"], told["missed"], told["left"]) == (2, 3, 0, 0)
    assert run["outcome"]["packets_left"] == 0
    assert set(run["steps"]) == {"restore", "seal", "stubs", "request", "compare"}
    status, result = service.replay(commit, "--calls", "real")
    assert status != 0 and result["runs"][0]["outcome"]["stubs"] is None


def test_a_question_that_was_not_recorded_is_told_with_the_nearest_and_what_would_take_it(
    relive: Relive, servers: dict[str, int]
) -> None:
    """GIVEN a recording in which the judged request asked something else
    WHEN it is replayed
    THEN the miss says what differs, and the option that it names makes the replay go through.
    """
    service = Answered(relive, {"httpx": servers["httpx"]})
    commit = relive("commit", "answered")["id"]
    service.ask("/httpx/4")
    service.rewrite(lambda event: replace(event, data=event.data.replace(b'{"number":4}', b'{"number":5}')))
    status, result = service.replay(commit)
    outcome, verdict = result["runs"][0]["outcome"], result["runs"][0]["verdict"]
    assert status == 10 and verdict["kind"] == "diverged"
    (miss,) = outcome["misses"]
    assert miss["differs"] == ["body:$.number"] and miss["to"] == f"127.0.0.1:{servers['httpx']}"
    assert "--ignore 'body:$.number'" in verdict["inside"][0]
    assert outcome["stubs"]["left"] == 1
    status, result = service.replay(commit, "--ignore", "body:$.number")
    assert status == 0, json.dumps(result, indent=1)


def test_a_free_running_branch_finds_its_servers_answering(relive: Relive, servers: dict[str, int]) -> None:
    """With a process of their own, which ends with the branch; without it the connections are closed."""
    service = Answered(relive, {"line": servers["line"]})
    commit = relive.commit("answered")
    said = service.ask("/line/3")
    branch = relive.restore(commit, service.inner)
    stubs = branch.inner.facts.stubs
    assert stubs is not None
    assert ask(branch.ports[service.inner], "/line/3") == json.loads(said)
    never_asked = ask(branch.ports[service.inner], "/line/4")
    assert never_asked == "ConnectionResetError: [Errno 104] Connection reset by peer"
    eventually(lambda: "no recorded answer" in relive("logs", branch.id).get("stubs", ""))
    assert branch.seal().is_intact
    branch.stop()
    eventually(lambda: not Path(f"/proc/{stubs}").exists(), "the stubs end with their branch")

    other = relive.restore(commit)
    assert _state(relive, other) == "running"
    killed = other.inner.facts.stubs
    assert killed is not None
    handle = os.pidfd_open(killed)
    try:
        os.kill(killed, signal.SIGKILL)
        assert select.select([handle], [], [], LIMIT)[0]
    finally:
        os.close(handle)
    assert _state(relive, other) == "running, its stubs have ended"
    other.stop()

    relive("restore", "--no-stubs", commit.id)
    (left,) = list_branches(relive.settings)
    assert left.facts.stubs is None


def _state(relive: Relive, branch: Branch) -> str:
    """What `relive ps` says of it."""
    (state,) = (one["state"] for one in relive("ps") if one["id"] == branch.id)
    return str(state)


def test_a_server_that_had_gone_is_gone_again(relive: Relive, servers: dict[str, int]) -> None:
    """GIVEN a server that answered, then reset a connection instead of answering, and to which connections were then refused
    WHEN the request that was refused is replayed, with those before it
    THEN its connection is refused as it was, though the destination is known, and the other one was reset.
    """
    gone = _Tcp(("127.0.0.1", 0), Lines)
    threading.Thread(target=gone.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    service = Answered(relive, {"fresh": gone.server_address[1]})
    service.ask("/fresh/1")
    commit = relive("commit", "answered")["id"]
    service.ask("/fresh/2")
    assert "ConnectionResetError" in service.ask("/fresh/slam")
    gone.shutdown()
    gone.server_close()
    assert "ConnectionRefusedError" in service.ask("/fresh/3")
    status, result = service.replay(commit)
    assert status == 0, json.dumps(result, indent=1)
    assert not any(note.startswith("before it") for note in result["runs"][0]["verdict"]["notes"])
    told = result["runs"][0]["outcome"]["stubs"]
    assert (told["given"], told["missed"], told["strangers"]) == (2, 0, [])


def test_the_timeline_of_an_incident_holds_what_was_said_at_the_border(
    relive: Relive, servers: dict[str, int]
) -> None:
    """As if the recorder inside had told it; and an incident is reproduced from it."""
    service = Answered(relive, servers)
    service.ask("/httpx/3")
    relive("commit", "answered")
    assert ask_once(service.port, "GET", "/httpx/4!")[0] == 500
    eventually(relive.incidents, "the incident")
    account = relive("show", "1")
    rows = [row for row in account["timeline"]["rows"] if row["source"] == "egress"]
    (row,) = rows
    assert (row["kind"], row["failed"]) == ("http-call", False)
    assert row["what"] == f"POST http://127.0.0.1:{servers['httpx']}/numbers/4" and row["result"] == "200 OK"
    assert json.loads(row["details"]["body"]["text"])["asked"] == '{"number":4}'
    assert account["recording"]["calls"] == 1
    done = relive.say("replay", "1")
    result = json.loads(done.stdout)
    assert done.returncode == 0, json.dumps(result, indent=1)


def test_what_the_recorder_inside_has_no_answer_to_passes_to_the_stubs(
    relive: Relive, servers: dict[str, int]
) -> None:
    """GIVEN a service that both recorders saw
    WHEN it is replayed
    THEN answers come from inside, those of what only the border understands from the stubs, and nothing is told twice.
    """
    uvicorn = (str(PYTHON), "-m", "uvicorn", "--app-dir", str(SERVICES), "answered:app", "--port")
    service = Answered(relive, servers, "--recorder", program=uvicorn)
    service.ask("/httpx/3")
    commit = relive("commit", "answered")["id"]
    service.ask("/line/3")
    assert ask_once(service.port, "GET", "/httpx/4!")[0] == 500
    eventually(relive.incidents, "the incident")
    rows = relive("show", "1")["timeline"]["rows"]
    assert [row["source"] for row in rows if row["kind"] == "http-call"] == ["inside"]
    status, result = service.replay(commit)
    assert status == 0, json.dumps(result, indent=1)
    told = result["runs"][0]["outcome"]["stubs"]
    # The line; httpx was answered inside.
    assert (told["given"], told["missed"], told["left"]) == (
        1,
        0,
        None,
    )


def test_a_call_that_was_lost_inside_is_answered_by_the_border(
    relive: Relive, servers: dict[str, int]
) -> None:
    """GIVEN a call that both recorders saw, of which the recording inside has been lost
    WHEN the failure after it is replayed with the default options
    THEN the border's answer is given, and nothing counts as missing. That the recording inside lacks the call is told.
    """
    uvicorn = (str(PYTHON), "-m", "uvicorn", "--app-dir", str(SERVICES), "answered:app", "--port")
    service = Answered(relive, servers, "--recorder", program=uvicorn)
    service.ask("/httpx/3")
    commit = relive("commit", "answered")["id"]
    assert ask_once(service.port, "GET", "/httpx/4!")[0] == 500
    eventually(relive.incidents, "the incident")
    service.lose_inside(EventKind.HTTP_CALL)
    _, result = service.replay(commit)
    (run,) = result["runs"]
    told = run["outcome"]["stubs"]
    assert (told["given"], told["missed"]) == (1, 0), json.dumps(result, indent=1)
    assert run["outcome"]["body"] == result["recorded"]["body"]
    assert "http-call" in run["verdict"]["difference"]
    assert run["verdict"]["missing"] == []
    assert [miss["policy"] for miss in run["outcome"]["misses"]] == ["pass"]


def test_a_new_encrypted_connection_is_answered_too(relive: Relive, https: tuple[int, Path]) -> None:
    """With a certificate by the authority that the service trusts since it was recorded."""
    port, roots = https
    service = Answered(relive, {"https": port}, SSL_CERT_FILE=str(roots))
    commit = relive("commit", "answered")["id"]
    assert "hello /numbers/3" in service.ask("/https/3")
    status, result = service.replay(commit)
    assert status == 0, json.dumps(result, indent=1)
    told = result["runs"][0]["outcome"]["stubs"]
    assert (told["opened"], told["given"], told["missed"]) == (1, 1, 0)
