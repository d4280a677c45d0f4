"""Failures are caught, each at its moment, and come back in a replay."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import shutil
import signal
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from support.ports import free_port
from support.waiting import LIMIT, eventually

from .harness import PYTHON, RELIVE, SERVICES, Http, Refused, Relive


@dataclass
class Failing:
    """The failing service behind the recording proxy."""

    relive: Relive
    pid: int
    outer: int

    def ask(self, path: str) -> int:
        """The status of the answer; 0 where the connection broke."""
        connection = http.client.HTTPConnection("127.0.0.1", self.outer, timeout=LIMIT)
        with contextlib.closing(connection):
            try:
                connection.request("GET", path)
                answer = connection.getresponse()
                answer.read()  # closing with something unread is a reset, of which the service would print a stack
                return answer.status
            except (OSError, http.client.HTTPException):
                return 0

    def incident(self, kind: str, said: str = "") -> dict[str, Any]:
        """The newest incident, once there is one of that kind that has this in its summary."""

        def look() -> dict[str, Any] | None:
            seen = [(one, one["sighting"]) for one in self.relive.incidents("failing")]
            return next((one for one, of in seen if of["kind"] == kind and said in of["summary"]), None)

        return eventually(look, f"an incident of kind {kind}")

    def commits(self) -> list[dict[str, Any]]:
        return self.relive.commits("failing")


LOGS = """
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer

class Answer(BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path != "/ok":
            print("ERROR: no rate", file=sys.stderr, flush=True)
        self.send_response(500 if self.path == "/fail" else 200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass

HTTPServer(("127.0.0.1", int(sys.argv[1])), Answer).serve_forever()
"""


def start(relive: Relive, *options: str, words: Sequence[str] = ()) -> Failing:
    inner, outer = free_port(), free_port()
    program = [str(PYTHON), str(SERVICES / "failing_service.py"), str(inner), *words]
    listen = ["--listen", f"127.0.0.1:{outer}", "--upstream", str(inner)]
    answer = relive(
        "run", "--detach", "--name", "failing", "--every", "start", *listen, *options, "--", *program
    )
    service = Failing(relive, answer["pid"], outer)
    eventually(service.commits, "the commit at the start")
    eventually(lambda: service.ask("/ok") == 200, "the service answers")
    return service


def replay(relive: Relive, incident: dict[str, Any], *options: str) -> dict[str, Any]:
    """What ``relive replay`` says, whatever its exit status."""
    done = relive.say("replay", "--pace", "fast", *options, str(incident["number"]))
    answer = json.loads(done.stdout)
    assert "error" not in answer, answer
    return dict(answer, exit_status=done.returncode)


def test_a_status_of_the_service_is_an_incident_and_comes_back(relive: Relive) -> None:
    service = start(relive)
    service.ask("/exit")
    incident = service.incident("exit")
    assert incident["sighting"]["exit_status"] == 3
    assert incident["before"] and incident["at"] and incident["before"] != incident["at"]
    result = replay(relive, incident)
    (run,) = result["runs"]
    assert run["outcome"]["exit_status"] == 3
    # It said nothing before it went, so nobody can tell whether that was for the same reason.
    assert (run["verdict"]["kind"], result["exit_status"]) == ("same-answer", 10)


@pytest.mark.parametrize(("path", "number"), [("/segv", signal.SIGSEGV), ("/abort", signal.SIGABRT)])
def test_a_fatal_signal_is_committed_before_it_kills(relive: Relive, path: str, number: int) -> None:
    """The commit at the signal holds the process as it stood, the original dies of its own signal, the replay too."""
    service = start(relive)
    service.ask(path)
    incident = service.incident("signal")
    assert incident["sighting"]["signal"] == number
    assert incident["before"] and incident["at"] and incident["before"] != incident["at"]
    at = relive("show", incident["at"])
    assert (at["stopped_by"], at["trigger"]) == (number, "incident")
    branch = relive.restore(incident["at"])
    state = Path(f"/proc/{branch.root}/stat").read_text().rpartition(")")[2].split()[0]
    assert state == "T", "the restored copy stands where the signal was about to strike"
    result = replay(relive, incident)
    assert result["exit_status"] == 0, json.dumps(result["runs"], indent=1)
    assert result["runs"][0]["outcome"]["signal"] == number
    if path == "/segv" and shutil.which("gdb") is not None:
        debugged = relive("debug", "-c", "print 6 * 7", "-c", "backtrace 1", str(incident["number"]))
        assert "$1 = 42" in debugged["output"] and "#0" in debugged["output"]


def test_a_crashing_child_is_an_incident_and_the_service_goes_on(relive: Relive) -> None:
    service = start(relive)
    assert service.ask("/child") == 200
    incident = service.incident("signal")
    assert incident["at"] and incident["sighting"]["signal"] == signal.SIGSEGV
    assert incident["sighting"]["pid"] != relive("show", incident["at"])["target"]["root"]
    assert service.ask("/ok") == 200
    assert service.ask("/hang-up") == 0
    # The death before it hides it no more.
    assert "GET /hang-up" in service.incident("broken")["sighting"]["summary"]


def test_a_logged_exception_and_its_answer_are_one_failure(relive: Relive) -> None:
    """In a server that the recorder knows nothing of; what the same thread had logged before is another matter."""
    service = start(relive, words=["log"])
    assert service.ask("/poison") == 200
    assert service.ask("/price") == 500
    incident = service.incident("exception")
    assert incident["sighting"]["request"] and "GET /price" in incident["sighting"]["summary"]
    assert incident["before"] and incident["at"]
    assert service.ask("/logged-twice") == 500
    numbers = eventually(
        lambda: [one for one in relive.incidents("failing") if "ValueError" in one["sighting"]["summary"]],
        "what was logged first",
    )
    assert numbers[0]["sighting"]["request"] is None
    found = relive("incidents", "failing")
    assert [one["sighting"]["kind"] for one in found] == ["exception"] * len(found), found
    result = replay(relive, incident)
    assert result["exit_status"] == 0, json.dumps(result["runs"], indent=1)


def test_a_line_of_the_log_and_the_failing_answer_are_one_failure(relive: Relive, tmp_path: Path) -> None:
    """Where no recorder is inside, by its place in the log; a line without a failing answer is one of its own."""
    script = tmp_path / "logs.py"
    script.write_text(LOGS)
    inner, outer = free_port(), free_port()
    options = ["--no-recorder", "--every", "start", "--log-pattern", "ERROR", "--log-pattern", "no rate"]
    options += ["--listen", f"127.0.0.1:{outer}", "--upstream", str(inner), "--name", "failing"]
    capsule = relive("run", "--detach", *options, "--", str(PYTHON), str(script), str(inner))
    service = Failing(relive, capsule["pid"], outer)
    eventually(service.commits, "the commit at the start")
    assert service.ask("/fail") == 500
    incident = service.incident("answer")
    assert service.ask("/log") == 200
    line = service.incident("log")
    assert "ERROR: no rate" in line["sighting"]["summary"]
    found = relive("incidents", "failing")
    assert [(one["sighting"]["kind"], one["times"]) for one in found] == [("log", 1), ("answer", 1)]
    assert [one["trigger"] for one in service.commits()] == ["incident", "incident", "start"]
    assert {incident["at"], line["at"]} == {one["id"] for one in service.commits()[:2]}


def test_a_5xx_that_the_state_decides_comes_back_every_time(relive: Relive) -> None:
    service = start(relive)
    assert service.ask("/price") == 200
    assert service.ask("/poison") == 200
    relive("commit", "failing")
    assert service.ask("/price") == 500
    incident = service.incident("answer")
    assert incident["sighting"]["answer_status"] == 500
    assert "GET /price" in incident["sighting"]["summary"]
    assert incident["before"] and incident["at"]
    result = replay(relive, incident, "--times", "3")
    assert result["exit_status"] == 0, json.dumps(result["runs"], indent=1)
    assert [run["verdict"]["kind"] for run in result["runs"]] == ["reproduced"] * 3
    for run in result["runs"]:
        assert run["outcome"]["packets_left"] == 0
        assert run["outcome"]["stack"]["exception"].startswith("TypeError")
    # The same failure again is one more sighting, not another incident.
    assert service.ask("/price") == 500
    eventually(lambda: service.incident("answer")["times"] == 2, "the second sighting")


def test_requests_since_the_commit_are_sent_again_and_decide_whether_it_fails(relive: Relive) -> None:
    """The poison came after the commit: only rolling forward brings the failure back. Without it the same request does not fail."""
    service = start(relive)
    relive("tag", "clean", service.commits()[0]["id"])
    assert service.ask("/price") == 200
    assert service.ask("/poison") == 200
    assert service.ask("/price") == 500
    incident = service.incident("answer")
    result = replay(relive, incident)
    assert result["exit_status"] == 0, json.dumps(result["runs"], indent=1)
    assert result["runs"][0]["forwarded"] >= 2
    number = incident["sighting"]["request"]
    done = relive.say("replay", "--request", str(number - 2), "clean")
    answer = json.loads(done.stdout)
    assert done.returncode == 0 and answer["runs"][0]["outcome"]["status"] == 200


def test_a_request_without_an_answer_is_a_hang(relive: Relive) -> None:
    """In C code; one in Python is ``test_verdicts``'s, where it is replayed too, and ``test_next_steps``'s."""
    service = start(relive, "--hang-after", "0.5")
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", service.outer, timeout=LIMIT)) as client:
        client.request("GET", "/hang-c")
        incident = service.incident("hang", "/hang-c")  # an earlier request may have been slow
    assert incident["before"] and incident["at"]
    assert service.ask("/ok") == 200, "the service goes on with its other threads"
    result = replay(relive, incident, "--limit", "2")
    assert result["runs"][0]["verdict"]["kind"] == "reproduced", json.dumps(result["runs"], indent=1)


def test_a_kill_for_want_of_memory_names_the_last_commit(relive: Relive) -> None:
    try:
        service = start(relive, "--memory", "96M")
    except Refused as refused:
        if refused.code == "host-incapable":
            pytest.skip(f"no memory cgroup here: {refused.cause}")
        raise
    service.ask("/memory")
    incident = service.incident("out-of-memory")
    assert incident["before"] in [one["id"] for one in service.commits()]
    assert incident["times"] == 1 and incident["sighting"]["request"], (
        "seen by the group's count and at the end"
    )
    # It takes its memory fast: whether there was time for a commit before the kill depends on the machine.
    assert incident["at"] in (None, incident["before"])


def test_run_in_the_foreground_passes_output_signals_and_status(relive: Relive) -> None:
    program = (
        "import signal, sys, time\n"
        "signal.signal(signal.SIGUSR1, lambda *_: print('usr1', flush=True))\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))\n"
        "print('ready', flush=True); print('oops', file=sys.stderr, flush=True)\n"
        "while True: time.sleep(0.01)\n"
    )
    process = subprocess.Popen(
        [RELIVE, "run", "--every", "never", "--name", "front", "--", PYTHON, "-c", program],
        env=relive.environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    assert process.stdout is not None and process.stderr is not None
    with process.stdout, process.stderr:
        assert process.stdout.readline() == b"ready\n"
        process.send_signal(signal.SIGUSR1)
        assert process.stdout.readline() == b"usr1\n"
        process.send_signal(signal.SIGTERM)
        errors = process.stderr.read()
        assert process.wait(LIMIT) == 7
    assert b"oops" in errors
    assert relive("incidents") == [], "a status after SIGTERM was asked for"


def test_the_service_outlives_relive_run_and_its_agent(relive: Relive) -> None:
    """Killing both leaves the service as it was; the next command gives it a new agent, and commits go on."""
    port = free_port()
    process = subprocess.Popen(
        [
            *(RELIVE, "run", "--every", "never", "--name", "left"),
            *("--", PYTHON, SERVICES / "failing_service.py", str(port)),
        ],
        env=relive.environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )

    def answers() -> bool:
        with Http(port) as client:
            return client("GET", "/ok") == 2

    eventually(answers, "the service answers")
    [capsule] = relive("ps")
    process.kill()
    process.wait(LIMIT)
    agent = eventually(lambda: next(relive.home.glob("capsules/left/2*/agent.pid"), None), "the agent")
    old = agent.read_text()
    os.kill(int(old.split()[0]), signal.SIGKILL)
    eventually(lambda: not Path(f"/proc/{old.split()[0]}").exists(), "the agent's end")
    assert answers()
    assert [one["pid"] for one in relive("ps")] == [capsule["pid"]]
    eventually(lambda: agent.read_text() != old, "another agent, whoever started it")
    assert relive("commit", "left")["id"]
    assert answers()


def test_a_line_of_its_output_is_an_incident_where_a_pattern_says_so(relive: Relive) -> None:
    """As with `relive watch`: of a thread of Java that dies, and of what is only logged, nothing else is seen."""
    program = "import sys, time\nprint('Exception in thread \"pool-1\"', file=sys.stderr, flush=True)\ntime.sleep(600)"
    options = ["--detach", "--name", "logs", "--every", "never", "--no-recorder"]
    relive("run", *options, "--log-pattern", "Exception in thread", "--", str(PYTHON), "-c", program)
    (incident,) = eventually(lambda: relive.incidents("logs"), "an incident")
    assert incident["sighting"]["kind"] == "log" and incident["at"]
    with pytest.raises(Refused) as refused:
        relive("run", *options, "--log-pattern", "(", "--", str(PYTHON), "-c", program)
    assert refused.value.status == 2
