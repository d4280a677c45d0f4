"""Replays of a service that lives on clocks, chance, threads and a server elsewhere: the same again, each time."""

from __future__ import annotations

import contextlib
import http.client
import itertools
import json
import re
import signal
import socketserver
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from relive.recording.events import EventKind
from relive.recording.reader import Recording
from support.waiting import LIMIT, eventually

from .harness import PYTHON, SERVICES, Relive, free_port
from .test_replay import ask


class Upstream(socketserver.ThreadingTCPServer):
    """Answers every line with a number it never gave before; "slow" only when it is told to."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Line)
        self.numbers = itertools.count(1)
        self.asked: list[str] = []
        self.may_answer = threading.Event()
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def close(self) -> None:
        self.may_answer.set()
        self.shutdown()
        self.server_close()


class _Line(socketserver.StreamRequestHandler):
    server: Upstream

    def handle(self) -> None:
        words = self.rfile.readline().decode().strip()
        self.server.asked.append(words)
        if words == "slow":
            self.server.may_answer.wait(LIMIT)
        with contextlib.suppress(OSError):
            self.wfile.write(f"{next(self.server.numbers)} for {words}\n".encode())


@pytest.fixture
def upstream() -> Iterator[Upstream]:
    server = Upstream()
    yield server
    server.close()


class Lively:
    """The service behind the proxy."""

    def __init__(
        self, relive: Relive, directory: Path, upstream: Upstream, program: str = "", **environment: str
    ) -> None:
        self.relive = relive
        inner, self.port = free_port(), free_port()
        command = (
            [str(PYTHON), str(SERVICES / program), str(inner)]
            if program
            else [
                str(PYTHON),
                "-m",
                "uvicorn",
                "--app-dir",
                str(SERVICES),
                "lively:app",
                "--port",
                str(inner),
            ]
        )
        listening = ["--listen", f"127.0.0.1:{self.port}", "--upstream", str(inner)]
        answer = relive(
            *("run", "--detach", "--name", "lively", "--every", "start", *listening, "--", *command),
            environment={
                "LIVELY_DB": str(directory / "hits.db"),
                "UPSTREAM": str(upstream.server_address[1]),
                **environment,
            },
        )
        self.pid: int = answer["pid"]
        self.life = relive.settings.capsules / "lively" / answer["life"]
        eventually(lambda: relive.commits("lively"), "the commit at the start")

    def ask(self, path: str) -> tuple[int, Any]:
        return ask(self.port, "GET", path)

    def recorded(self, kind: EventKind) -> list[Any]:
        return [event for event in Recording(self.life / "inside").events() if event.kind is kind]

    def handled(self, number: int) -> None:
        """Wait until so many handlers have ended in the recording."""
        eventually(lambda: len(self.recorded(EventKind.HANDLING_ENDED)) >= number, "the recording has it all")

    def last_request(self) -> int:
        events = Recording(self.life / "recording").events()
        return max(event.request for event in events)

    def replay(self, commit: str, request: int, *options: str) -> tuple[int, dict[str, Any]]:
        done = self.relive.say("replay", "--request", str(request), "--pace", "fast", *options, commit)
        return done.returncode, json.loads(done.stdout)


def test_every_replay_of_a_lively_request_is_the_same_event_by_event(
    relive: Relive, tmp_path: Path, upstream: Upstream
) -> None:
    replay_again_and_again(relive, tmp_path, upstream, 4)


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_a_hundred_replays_are_the_same(relive: Relive, tmp_path: Path, upstream: Upstream) -> None:
    replay_again_and_again(relive, tmp_path, upstream, 100)


def replay_again_and_again(relive: Relive, tmp_path: Path, upstream: Upstream, runs: int) -> None:
    """GIVEN a request that reads clocks and randomness, in threads and tasks, and asks a server elsewhere
    WHEN it is replayed again and again, the server being gone
    THEN each answer is the recorded one to the last digit, and nothing else happened inside.
    """
    lively = Lively(relive, tmp_path, upstream)
    assert lively.ask("/do/warm")[0] == 200
    commit = relive("commit", "lively")["id"]
    assert lively.ask("/do/before")[0] == 200
    status, body = lively.ask("/do/it")
    assert status == 200
    lively.handled(3)
    asked = len(upstream.asked)
    code, result = lively.replay(commit, lively.last_request(), "--times", str(runs))
    assert code == 0, json.dumps(result["runs"], indent=1)[:4000]
    assert len(upstream.asked) == asked
    recorded = result["recorded"]["events"]
    kinds = {event["kind"] for event in recorded}
    assert {"clock", "random", "http-call", "query", "handling-started", "handling-ended"} <= kinds
    assert len({event["lane"] for event in recorded}) >= 6
    for run in result["runs"]:
        assert json.loads(run["outcome"]["body"]) == json.loads(body)
        assert run["verdict"]["inside"] == []
        assert run["outcome"]["misses"] == []
        assert by_lane(run["outcome"]["events"]) == by_lane(recorded)


def test_a_process_that_is_forked_for_a_request_plays_what_the_recorded_one_did(
    relive: Relive, tmp_path: Path, upstream: Upstream
) -> None:
    """The commit holds the parent only; the answers of the child that was forked later come to the one forked in the branch."""
    lively = Lively(relive, tmp_path, upstream, program="forking.py")
    assert lively.ask("/first")[0] == 200
    commit = relive("commit", "lively")["id"]
    assert lively.ask("/again")[0] == 200
    status, body = lively.ask("/again")
    assert status == 200
    lively.handled(3)
    asked = list(upstream.asked)
    code, result = lively.replay(commit, lively.last_request(), "--times", "2")
    assert code == 0, result["runs"]
    for run in result["runs"]:
        assert run["outcome"]["body"] == body.decode()
        assert run["outcome"]["events"] == result["recorded"]["events"]
        assert (run["verdict"]["inside"], run["outcome"]["misses"]) == ([], [])
    assert upstream.asked == asked


def test_processes_that_are_started_for_a_request_play_what_the_recorded_ones_did(
    relive: Relive, tmp_path: Path, upstream: Upstream
) -> None:
    """By subprocess and by multiprocessing (spawn): nothing of the commit's memory is in them."""
    lively = Lively(relive, tmp_path, upstream, program="starting.py")
    assert lively.ask("/first")[0] == 200
    commit = relive("commit", "lively")["id"]
    status, body = lively.ask("/again")
    assert status == 200
    eventually(lambda: len(lively.recorded(EventKind.HTTP_CALL)) >= 4, "the recording has it all")
    asked = list(upstream.asked)
    code, result = lively.replay(commit, lively.last_request())
    assert code == 0, result["runs"]
    (run,) = result["runs"]
    assert (run["outcome"]["body"], run["outcome"]["misses"]) == (body.decode(), [])
    assert upstream.asked == asked


def test_a_call_that_a_commit_holds_half_done_is_answered_and_a_killed_service_dies_again(
    relive: Relive, tmp_path: Path, upstream: Upstream
) -> None:
    """GIVEN a commit that holds a request amid a call, whose other end is not in the commit
    WHEN a later request is replayed that tells what came of the call, and later the death of the service
    THEN the call had the answer that was recorded after the commit, and the death comes again.
    """
    lively = Lively(relive, tmp_path, upstream)
    waiting = threading.Thread(target=lively.ask, args=("/wait",))
    waiting.start()
    eventually(lambda: "slow" in upstream.asked, "the call is under way")
    commit = relive("commit", "lively")["id"]
    upstream.may_answer.set()
    waiting.join(LIMIT)
    status, body = lively.ask("/waited")
    assert (status, "for slow" in body.decode()) == (200, True)
    lively.handled(2)
    code, result = lively.replay(commit, lively.last_request())
    assert code == 0, result["runs"]
    assert result["runs"][0]["outcome"]["body"] == body.decode()

    with contextlib.suppress(OSError, http.client.HTTPException):
        lively.ask("/die")
    (incident,) = eventually(lambda: relive.incidents("lively"), "the incident")
    asked = list(upstream.asked)
    (run,) = relive("replay", str(incident["number"]), "--pace", "fast")["runs"]
    assert run["verdict"]["kind"] == "reproduced", run
    assert run["outcome"]["signal"] == signal.SIGKILL
    assert "before the end" in json.dumps(run["outcome"]["events"])
    assert upstream.asked == asked


def test_what_was_not_recorded_is_said_and_a_service_without_recorder_is_replayed_as_ever(
    relive: Relive, tmp_path: Path, upstream: Upstream
) -> None:
    """GIVEN a ring that is too small for what a request does, and a recorder that has a fault
    WHEN requests are replayed
    THEN what was lost is said, and without the recorder calls find nobody.
    """
    lively = Lively(relive, tmp_path, upstream, RELIVE_RING=str(1 << 16))
    commit = relive("commit", "lively")["id"]
    assert lively.ask("/many/30000")[0] == 200
    lively.handled(1)
    _, result = lively.replay(commit, lively.last_request())
    (run,) = result["runs"]
    assert run["outcome"]["status"] == 200
    assert any("events were lost when the service was recorded" in note for note in run["verdict"]["inside"])

    assert lively.ask("/off")[0] == 200
    assert lively.ask("/do/off")[0] == 200
    code, result = lively.replay(commit, lively.last_request())
    (run,) = result["runs"]
    assert code == 10
    assert (run["outcome"]["status"], run["outcome"]["packets_left"]) == (500, 0)


def by_lane(events: list[dict[str, Any]]) -> dict[int, list[dict[str, Any]]]:
    """As they are compared: of what was logged without numbers, since ports stand in it."""
    compared = [
        event
        if event["kind"] != EventKind.LOG_RECORD
        else event | {"about": re.sub(r"\d+", "N", str(event["about"]))}
        for event in events
    ]
    return {
        lane: [one for one in compared if one["lane"] == lane]
        for lane in sorted({one["lane"] for one in compared})
    }
