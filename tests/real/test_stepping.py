"""Requests that failed, replayed line by line: values at a line, who wrote a value, forward and back; with nothing left behind."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from relive.stepping.dap_server import read_message
from support.ports import free_port
from support.waiting import LIMIT, eventually

from .harness import RELIVE, SERVICES, TOOLS, Refused, Relive
from .test_bisect import get, left_over
from .test_interventions import Dependent, failed, started

SOURCE = SERVICES / "dependent.py"
_ROW = "_, name, *rest"  # of its source
_EDITORS_CLIENT = "@vscode/debugadapter-testsupport@1.68.0"


def line_of(text: str) -> int:
    """In the service's source."""
    return next(n for n, one in enumerate(SOURCE.read_text().splitlines(), 1) if text in one)


@pytest.fixture(scope="module")
def noted(commands: None) -> Iterator[Dependent]:
    """Two names that do not go together are noted, a commit is taken, and what checks them fails."""
    home = Path(tempfile.mkdtemp(prefix="relive-"))
    relive = Relive(home, "stepping")
    port = started(relive, "noted", {"rates": 1}, inside=True)
    for target in ("/noted/left", "/noted/none", "/noted/right", "/noted/last"):
        assert get(port, target) == 200
    relive("commit", "noted")
    assert get(port, "/noted/later") == 200
    yield Dependent(relive, {"/checked": failed(relive, port, "/checked")})
    relive.close()
    shutil.rmtree(home)


def test_values_at_a_line_of_the_failing_request_in_each_replay(noted):
    """It runs in a thread that waited for work when the commit was taken."""
    before = left_over(noted.relive)
    line = line_of('assert not {"left", "right"}')
    words = [f"dependent.py:{line}", "sorted(NOTED)", "NOTED.nothing", "--times", "2"]
    told = noted.relive("logpoint", noted.incidents["/checked"], *words)
    assert told["file"] == str(SOURCE) and told["source"].startswith("assert not")
    assert [run["result"] for run in told["runs"]] == ["fails the same"] * 2
    for run in told["runs"]:
        (hit,) = run["hits"]
        names, raised = hit["values"]
        assert names["text"] == "['first', 'last', 'later', 'left', 'none', 'right']"
        assert raised["raised"] and raised["text"].startswith("AttributeError")
        assert hit["function"] == "checked" and hit["request"] is not None
    assert told["runs"][0]["hits"] == told["runs"][1]["hits"]
    assert left_over(noted.relive) == before


def test_a_condition_and_the_requests_before(noted):
    line = line_of("NOTED.add(name)")
    words = [f"dependent.py:{line}", "name", "--all-requests", "--when", "len(NOTED) > 3"]
    (run,) = noted.relive("logpoint", noted.incidents["/checked"], *words)["runs"]
    assert [one["text"] for hit in run["hits"] for one in hit["values"]] == ["'later'"]
    done = noted.relive.say("logpoint", noted.incidents["/checked"], f"dependent.py:{line}", "name")
    assert done.returncode == 1  # the failing request never comes there


def test_an_expression_that_does_not_end_is_told_and_nothing_is_left(noted):
    before = left_over(noted.relive)
    line = line_of('assert not {"left", "right"}')
    words = [f"dependent.py:{line}", "__import__('threading').Event().wait()", "--limit", "1"]
    done = noted.relive.say("logpoint", noted.incidents["/checked"], *words)
    assert done.returncode == 1 and "did not end" in done.stdout
    with pytest.raises(Refused) as refused:
        noted.relive("logpoint", noted.incidents["/checked"], "nobody.py:1", "1")
    assert refused.value.code == "place-unfit" and str(SOURCE) in refused.value.cause
    assert left_over(noted.relive) == before


def test_who_wrote_a_value_since_the_commit_and_before_it(noted):
    before = left_over(noted.relive)
    number = noted.incidents["/checked"]
    latest = noted.relive("who-wrote", number, "dependent.NOTED")
    assert len(latest["tried"]) == 1 and latest["result"] == "fails the same"
    place = latest["writes"][-1]["place"]
    assert (place["function"], place["about"].split(" ", 2)[2]) == ("noted", "(GET /noted/later)")
    assert place["line"] == line_of("NOTED.add(name)")
    earlier = noted.relive("who-wrote", number, "'right' in dependent.NOTED")
    assert len(earlier["tried"]) == 2 and "(GET /noted/right)" in earlier["sentence"]
    assert (earlier["writes"][-1]["before"], earlier["writes"][-1]["after"]) == ("False", "True")
    done = noted.relive.say("who-wrote", number, "'nobody' in dependent.NOTED")
    assert done.returncode == 10 and "Nothing wrote" in done.stdout
    assert left_over(noted.relive) == before


def test_forward_and_back_from_the_failure(noted):
    before = left_over(noted.relive)
    words = [
        "reverse-out",
        "p path",
        "break dependent.py:{} if _ == 'nobody'",
        "rc",
        "failure",
    ]
    words += [
        "watch dependent.NOTED",
        "rc",
        "where",
        "p __import__('os')._exit(1)",
        "p sorted(NOTED)",
        "c",
        "rs",
    ]
    line = line_of("""assert not {"left", "right"}""")
    asked = [one.format(line) for word in words for one in ("-c", word)]
    told = noted.relive("debug", noted.incidents["/checked"], "--step", *asked)
    assert told["opening"].splitlines()[0].endswith(f"dependent.py:{line} checked")
    answers = {one["command"]: one["answer"] for one in told["answers"]}
    assert answers["reverse-out"].splitlines()[0].endswith(" answer")
    assert answers["p path"] == "path = '/checked'"
    assert "There is nothing before" in answers["rc"]
    assert "no answer" in answers["p __import__('os')._exit(1)"]
    assert answers["p sorted(NOTED)"].endswith("['first', 'last', 'later', 'left', 'none', 'right']")
    assert "has ended" in answers["c"] and told["has_gone_on"] is False
    assert answers["rs"].startswith("@")
    assert left_over(noted.relive) == before


def test_what_stepping_does_not_go_with_is_refused(noted):
    with pytest.raises(Refused) as refused:
        noted.relive("debug", noted.incidents["/checked"], "--step", "--keep", "-c", "rs")
    assert "--keep" in refused.value.message


def test_an_expression_that_hangs_before_anything_runs_is_given_up_in_its_time(noted):
    before = left_over(noted.relive)
    hangs = "__import__('threading').Event().wait()"
    with pytest.raises(Refused) as refused:
        noted.relive("who-wrote", noted.incidents["/checked"], hangs, "--limit", "1")
    assert "within 10 s" in refused.value.cause
    assert left_over(noted.relive) == before


def test_a_killed_debugger_leaves_nothing(noted):
    before = left_over(noted.relive)
    port = free_port()
    words = [str(RELIVE), "debug", noted.incidents["/checked"], "--step", "--dap", str(port)]
    with subprocess.Popen(words, env=noted.relive.environment, stdin=subprocess.DEVNULL) as adapter:
        try:
            with closing(DapClient(port)) as client:
                client.ask("initialize")
                client.ask("configurationDone")
                client.stopped()
                assert left_over(noted.relive) != before
        finally:
            adapter.kill()

    # What it had not finished making is left alone for ten seconds, as another may be about to claim it: those are over here.
    eventually(lambda: left_over(noted.relive)[1:] == before[1:], "processes and mounts end by themselves")
    for left in noted.relive.settings.branches.iterdir():
        os.utime(left, (0, 0))
    noted.relive("ps")  # any command tidies up after whoever was killed
    assert left_over(noted.relive) == before


class DapClient:
    """A client of the Debug Adapter Protocol, as an editor is one."""

    def __init__(self, port: int) -> None:
        self.connection = eventually(lambda: self._connected(port), "a debug adapter")
        self.stream = self.connection.makefile("rb")
        self.events: list[dict[str, Any]] = []
        self.seq = 0

    @staticmethod
    def _connected(port: int) -> socket.socket:
        return socket.create_connection(("127.0.0.1", port), timeout=LIMIT)

    def _read(self) -> dict[str, Any]:
        told = read_message(self.stream)
        assert told is not None, "the adapter has gone"
        return told

    def ask(self, command: str, **arguments: Any) -> Any:
        """The body of its answer."""
        self.seq += 1
        request = {"seq": self.seq, "type": "request", "command": command, "arguments": arguments}
        data = json.dumps(request).encode()
        self.connection.sendall(b"Content-Length: %d\r\n\r\n" % len(data) + data)
        while (told := self._read())["type"] != "response":
            self.events.append(told)
        assert told["request_seq"] == self.seq
        assert told["success"], told
        return told["body"]

    def close(self) -> None:
        self.stream.close()
        self.connection.close()

    def stopped(self) -> dict[str, Any]:
        """The innermost frame, after the next event that says so."""
        while not any(one["event"] == "stopped" for one in self.events):
            self.events.append(self._read())
        self.events.clear()
        return dict(self.ask("stackTrace", threadId=1, levels=1)["stackFrames"][0])


@pytest.fixture
def editors_client() -> Path:
    """A directory of modules with the client of Visual Studio Code; fetched once, and kept beside Relive's tools."""
    directory = TOOLS / "dap-client"
    if not (directory / "whole").exists():
        directory.mkdir(exist_ok=True)
        command = ["npm", "install", "--no-audit", "--no-fund", "--prefix", directory, _EDITORS_CLIENT]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=directory)
        if done.returncode != 0:
            pytest.skip(f"npm cannot fetch the client: {done.stderr.strip().splitlines()[-1:]}")
        (directory / "whole").touch()
    return directory / "node_modules"


@pytest.mark.skipif(not (shutil.which("node") and shutil.which("npm")), reason="needs node and npm")
def test_an_editors_own_client_steps_back_by_the_debug_adapter_protocol(noted, tmp_path, editors_client):
    before = left_over(noted.relive)
    port = free_port()
    words = [str(RELIVE), "debug", noted.incidents["/checked"], "--step", "--dap", str(port), "--vscode"]
    with subprocess.Popen(
        words, cwd=tmp_path, env=noted.relive.environment, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE
    ) as adapter:
        try:
            assert adapter.stderr is not None
            assert any(b"Listening on" in one for one in adapter.stderr)
            driven = subprocess.run(
                ["node", Path(__file__).with_name("dap_client.js"), str(port), SOURCE, str(line_of(_ROW))],
                env=os.environ | {"NODE_PATH": str(editors_client)},
                capture_output=True,
                text=True,
                check=False,
            )
            assert driven.returncode == 0, driven.stderr
            assert adapter.wait(LIMIT) == 0
        finally:
            adapter.kill()
    seen = json.loads(driven.stdout)
    assert seen["stepsBack"]
    assert (seen["failure"]["name"], seen["failure"]["source"]["path"]) == ("checked", str(SOURCE))
    assert seen["before"]["name"] == "answer"
    assert seen["breakpoint"]["line"] == line_of(_ROW)
    assert {one["name"]: one["value"] for one in seen["variables"]}["path"] == "'/checked'"
    assert seen["evaluated"] == "6" and seen["end"]["name"]
    assert (seen["changed"], seen["threads"]) == ([True, False], 1)
    assert (seen["watched"], seen["unfolded"]) == ("dependent.NOTED", 6)
    (entry,) = json.loads((tmp_path / ".vscode" / "launch.json").read_text())["configurations"]
    assert entry["debugServer"] == port
    assert left_over(noted.relive) == before
