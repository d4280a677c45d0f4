"""Finding the commit with which something began, on a real service; each probe is a branch that leaves nothing behind."""

from __future__ import annotations

import contextlib
import http.client
import os
import shutil
import signal
import socket
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from relive.kernel import procfs
from relive.kernel.sockdiag import listening_ports
from support.ports import free_port
from support.waiting import eventually

from .harness import PYTHON, RELIVE, SERVICES, Process, Refused, Relive, ask
from .test_inspection import HANGS

POISON, FAILING = "/price?currency=chf", "/price?currency=CHF"
IS_POISONED = "cache.get('CHF', 0) is None"


@dataclass(frozen=True)
class Poisoned:
    """The service, and its commits: poisoned between the third and the fourth, seen after the last."""

    relive: Relive
    commits: list[str]
    stranger: str
    later: str

    def bisect(self, *words: str) -> Any:
        """Between the first and the last; with time enough on a busy machine."""
        limit = () if "--limit" in words else ("--limit", "60")
        return self.relive("bisect", "--good", self.commits[0], "--bad", self.commits[-1], *limit, *words)


def get(port: int, path: str) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        answer.read()
        return answer.status
    finally:
        connection.close()


@pytest.fixture(scope="module")
def service(commands: None) -> Iterator[Poisoned]:
    home = Path(tempfile.mkdtemp(prefix="relive-"))
    relive, outer, inner = Relive(home, "bisect"), free_port(), free_port()
    options = ("--listen", f"127.0.0.1:{outer}", "--upstream", str(inner))
    capsule = relive.run(PYTHON, SERVICES / "poisoned.py", inner, name="prices", options=options)
    ask(outer, "/price")
    commits = []
    for path in ("/price", "/price", POISON, "/price", "/price", None):
        commits.append(relive.commit(capsule, measured=False).id)
        if path is not None:
            assert get(outer, path) == (404 if path == POISON else 200)
    assert get(outer, FAILING) == 500
    eventually(relive.incidents, "the incident")
    other = relive.run(PYTHON, "-c", "import signal; signal.pause()", name="stranger")
    later = relive.commit(capsule, measured=False).id
    yield Poisoned(relive, commits, relive.commit(other, measured=False).id, later)
    relive.close()
    shutil.rmtree(home)


def left_over(relive: Relive) -> tuple[list[str], int, int, int]:
    """What a branch could leave: its directory, mounts, processes, network namespaces of these."""
    branches = relive.settings.branches
    mounts = sum(str(relive.home) in line for line in Path("/proc/self/mountinfo").read_text().splitlines())
    processes, networks = 0, set()
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if f"{branches}/" in (path / "mountinfo").read_text():  # of a branch's own files
                processes += 1
                networks.add(os.readlink(path / "ns/net"))
        except OSError:
            continue
    there = sorted(path.name for path in branches.glob("*")) if branches.exists() else []
    return there, mounts, processes, len(networks)


def commands_below(pid: int) -> str:
    """Of a process and its descendants."""
    return "\n".join(" ".join(procfs.command_of(one)) for one in procfs.tree_of(pid)[1:])


def check_the_poisoning(service: Poisoned, found: Any) -> None:
    (jump,) = found["jumps"]
    assert (jump["before"]["commit"], jump["after"]["commit"]) == tuple(service.commits[2:4])
    assert jump["begins"] and jump["unjudged"] == []
    assert [(one["method"], one["target"], one["status"]) for one in jump["requests"]] == [
        ("GET", POISON, 404)
    ]
    changes = {one["name"]: (one["before"], one["after"]) for one in jump["difference"]["python"]["changes"]}
    assert changes["cache['CHF']"] == (None, "None") and "cache['EUR']" not in changes


@pytest.mark.parametrize(
    "asked",
    [
        ("--when", f"{IS_POISONED}  # poisoned"),
        ("--http", FAILING, "--expect", "status == 200 and body == '3.76'"),
        ("--run",),
    ],
    ids=lambda asked: asked[0],
)
def test_the_request_that_poisoned_the_cache_is_named(service, asked):
    if asked[0] == "--run":
        port = service.relive("show", service.commits[0])["listening"][0][1]
        script = f"import urllib.request as r; r.urlopen('http://127.0.0.1:{port}{FAILING}')"
        asked = ("--run", f'{PYTHON} -c "{script}"')
    before = left_over(service.relive)
    check_the_poisoning(service, service.bisect("--further", "0", *asked))
    assert left_over(service.relive) == before


def test_the_incident_itself_says_from_which_commits_it_fails(service):
    found = service.relive("bisect", "--replay", "1", "--limit", "60")
    check_the_poisoning(service, found)
    assert found["commits"] == found["probes"] == len(service.commits)


def test_the_text_for_people_names_commit_request_and_value(service):
    words = ["bisect", "--good", service.commits[2], "--bad", service.commits[3], "--when", IS_POISONED]
    done = service.relive.commands(words, service.relive.environment)
    assert f"It begins with commit {service.commits[3][:10]}" in done.stdout
    assert f"GET {POISON}  404" in done.stdout and "cache['CHF']: added None" in done.stdout


def test_what_heals_and_comes_again_is_told_as_three_changes(service):
    """``asked`` is 1 in the first commit, and one more in each that follows."""
    found = service.bisect("--when", "asked in (2, 3, 6)", "--further", "9")
    places = [(one["after"]["number"], one["begins"]) for one in found["jumps"]]
    assert places == [(1, True), (3, False), (5, True)]


def test_rates_that_nobody_knows_are_found_too(service):
    found = service.bisect(
        *("--flaky", "--further", "0", "--confidence", "0.9"),
        *("--when", f"__import__('os').urandom(1)[0] < (255 if {IS_POISONED} else 1)"),
    )
    (jump,) = found["jumps"]
    # Right in nine of ten searches at least; none of 20,000 simulated ones told a commit further off than the next.
    assert abs(jump["after"]["number"] - 3) <= 1 and jump["begins"] and jump["probability"] >= 0.9
    before, after = jump["sides"]
    assert before["rate"] < after["rate"]


def test_the_curve_says_how_probable_it_is_from_each_commit(service):
    words = ["bisect", "--good", service.commits[0], "--bad", service.commits[-1], "--limit", "60"]
    words += ["--when", IS_POISONED, "--further", "0", "--curve", "6", "--times", "2"]
    found = service.relive(*words)
    check_the_poisoning(service, found)
    assert [(one["number"], one["bad"], one["probes"]) for one in found["curve"]] == [
        (at, 2 * (at >= 3), 2) for at in range(6)
    ]
    (jump,) = found["jumps"]
    assert [(side["bad"], side["probes"]) for side in jump["sides"]] == [(0, 6), (6, 6)]
    assert found["probes"] == 12  # the search's own count
    for one in found["curve"]:
        assert 0 <= one["least"] <= one["rate"] <= one["most"] <= 1
    words[-1] = "1"
    lines = service.relive.commands(words, service.relive.environment).stdout.splitlines()
    drawn = lines[next(at for at, line in enumerate(lines) if "How probable" in line) + 2 :][:7]
    # Time goes down: three commits on the left, the request that did it, three on the right.
    assert [line.split()[-3:] for line in drawn[:3]] == [["0", "of", "1"]] * 3
    assert POISON in drawn[3] and [line.split()[-3:] for line in drawn[4:]] == [["1", "of", "1"]] * 3
    assert max(line.index("o") for line in drawn[:3]) < min(line.index("o") for line in drawn[4:])


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (("--when", HANGS, "--limit", "0.3"), "did not end within 0.3 s"),
        (("--when", "cache['nothing']"), "raised KeyError"),
        (("--when", "__import__('os')._exit(1)"), "its process ended"),
        (("--run", "sleep 60", "--limit", "0.3"), "did not end within 0.3 s"),
        (("--run", "/no/such/program"), "ended with 127"),
        (("--run", "kill -9 $$"), "137"),
        (("--http", "/price", "--expect", "json['x'] == 1"), "cannot be told"),
    ],
)
def test_a_predicate_that_fails_is_an_error_and_leaves_nothing(service, asked, words):
    before = left_over(service.relive)
    with pytest.raises(Refused) as refused:
        service.bisect(*asked)
    assert refused.value.code == "usage" and words in str(refused.value)
    assert left_over(service.relive) == before


@pytest.mark.parametrize(
    ("words", "cause"),
    [
        (("--when", "1"), "first commit"),
        (("--when", "0"), "last commit"),
        ((), "what is to be asked"),
        (("--when", "1", "--run", "true"), "run and when cannot be asked together"),
        (("--expect", "status == 200", "--when", "1"), "an expectation is of an answer"),
        (("--http", "no path"), "is no request"),
        (("--when", "1", "--times", "3"), "of a curve"),
        (("--when", "1", "--curve", "1000", "--times", "11"), "too many probes"),
        (("--http", "/", "--expect", "open('/etc/passwd')"), "is no expectation"),
    ],
)
def test_what_cannot_be_meant_is_refused(service, words, cause):
    with pytest.raises(Refused) as refused:
        service.bisect(*words)
    assert refused.value.code == "usage" and cause in str(refused.value)


def test_commits_of_another_service_and_in_the_wrong_order_are_refused(service):
    with pytest.raises(Refused, match=r"is of 'stranger'"):
        service.relive("bisect", "--good", service.stranger, "--bad", service.commits[-1], "--when", "1")
    with pytest.raises(Refused, match=r"is of 'stranger'"):
        service.relive("bisect", "--replay", "1", "--bad", service.stranger)
    with pytest.raises(Refused, match=r"was taken after the failing request"):
        service.relive("bisect", "--replay", "1", "--bad", service.later)
    with pytest.raises(Refused, match=r"is both good and bad.*only one before"):
        service.relive("bisect", "--replay", "1", "--bad", service.commits[0])
    with pytest.raises(Refused, match=r"was not taken before"):
        service.relive("bisect", "--good", service.commits[1], "--bad", service.commits[0], "--when", "1")


def test_a_killed_command_leaves_nothing(service):
    """GIVEN a predicate that hangs in a branch, WHEN the command is killed, THEN the next one finds nothing left."""
    before = left_over(service.relive)
    words = ["--good", service.commits[0], "--bad", service.commits[-1], "--run", "sleep 600; true"]
    with contextlib.closing(
        Process(RELIVE, "bisect", *words, "--limit", "600", env=service.relive.environment)
    ) as process:
        eventually(lambda: "\nsleep 600" in commands_below(process.pid), "the command in a branch")
        os.kill(process.pid, signal.SIGKILL)
    service.relive("ps")
    eventually(lambda: left_over(service.relive) == before, "nothing left")


def test_the_message_that_poisoned_a_service_without_http_is_named(relive: Relive) -> None:
    port = free_port()
    options = ("--listen", f"127.0.0.1:{port}")
    capsule = relive.run(PYTHON, SERVICES / "poisoned_lines.py", port, name="lines", options=options)
    for said, heard in (("EUR", b"4.00\n"), ("chf", b"unknown\n"), ("EUR", b"4.00\n"), ("CHF", b"")):
        eventually(lambda: port in listening_ports(), "it listens")
        relive.commit(capsule, measured=False)
        with socket.create_connection(("127.0.0.1", port), timeout=60) as client:
            client.sendall(f"{said}\n".encode())
            assert client.recv(64) == heard
    incident = eventually(relive.incidents, "the incident")[0]["number"]
    words = ["bisect", "--replay", str(incident), "--limit", "1"]
    places = [(one["trigger"], one["sequence"]) for one in relive("log")]
    assert all(place is not None for trigger, place in places if trigger == "manual"), places
    (jump,) = relive(*words)["jumps"]
    assert jump["requests"] == [] and [one["body"]["text"] for one in jump["messages"]] == ["chf\n"]
    changes = {one["name"]: one["after"] for one in jump["difference"]["python"]["changes"]}
    assert changes["cache['CHF']"] == "None"
    done = relive.commands(words, relive.environment)
    assert "1 message between them:" in done.stdout and "> chf" in done.stdout
