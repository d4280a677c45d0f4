"""A replay that fails for another reason than the recorded one is never called reproduced.

Each service asks a server before it comes to its bug, and nobody records that. In the branch that server is missing, so the same
answer comes for another reason. The twin of each asks nobody: it is reproduced.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import shutil
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from support.ports import free_port
from support.waiting import LIMIT, eventually

from .harness import PYTHON, SERVICES, Relive, compiled

HANG_SOON = ("--hang-after", "1.5")  # [s] without an answer; what answers is slow on a busy machine


@pytest.fixture(scope="module")
def rates() -> Iterator[int]:
    """The server of rates: says a byte to whoever connects. Its port."""
    with socket.create_server(("127.0.0.1", 0)) as server, saying_rates(server):
        yield server.getsockname()[1]


@contextlib.contextmanager
def saying_rates(server: socket.socket) -> Iterator[None]:
    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = server.accept()
                with client:
                    client.sendall(b"2")

    thread = threading.Thread(target=serve)
    thread.start()
    yield
    server.shutdown(socket.SHUT_RDWR)
    thread.join()


def ask(port: int, path: str) -> int | None:
    """The status; None where none came."""
    client = http.client.HTTPConnection("127.0.0.1", port, timeout=LIMIT)
    try:
        client.request("GET", path)
        return client.getresponse().status
    except (OSError, http.client.HTTPException):
        return None
    finally:
        client.close()


def command(how: str, directory: Path) -> list[str]:
    """Of a service, without its ports."""
    language, _, mode = how.partition(" ")
    match language:
        case "node":
            return ["node", str(SERVICES / "verdicts.js"), "{port}", "{rates}", mode]
        case "python":
            return [str(PYTHON), str(SERVICES / "verdicts.py"), "{port}", "{rates}", mode]
        case _:
            program = compiled(SERVICES / f"{language}.c", directory)
            return [str(program), "{port}", "{rates}", *mode.split()]


def verdict_of(
    relive: Relive,
    how: str,
    rates: int | str,
    directory: Path,
    *options: str,
    is_recorded: bool = True,
    before_replay: Callable[[], None] = lambda: None,
) -> dict[str, Any]:
    """The only run of a replay of the only incident. One that hangs is ended before: it may go round for ever.

    ``is_recorded``: what it asks of others is, as without a word of it.
    """
    inner, outer = free_port(), free_port()
    words = [word.format(port=inner, rates=rates) for word in command(how, directory)]
    listen = ["--listen", f"127.0.0.1:{outer}", "--upstream", str(inner)]
    name = f"shop{inner}"
    relive(
        "run",
        "--detach",
        "--name",
        name,
        "--every",
        "never",
        "--no-recorder",
        *options,
        *(() if is_recorded else ("--no-record-egress",)),
        *listen,
        "--",
        *words,
    )
    eventually(lambda: ask(inner, "/") == 200, "it answers")
    eventually(lambda: ask(outer, "/") == 200, "the proxy takes requests")
    assert ask(outer, "/price") == 200
    assert ask(outer, "/poison") == 200
    # The first commits of a life may be taken before the proxy tells the agent where its recording stands.
    eventually(lambda: relive("show", relive("commit", name)["id"])["cursor"], "a commit with a cursor")
    if options:
        with socket.create_connection(("127.0.0.1", outer), LIMIT) as client:
            client.sendall(b"GET /price HTTP/1.1\r\nHost: shop\r\n\r\n")
            (incident,) = eventually(lambda: relive.incidents(name), "the incident")
        relive("stop", "--timeout", "0.1", name)
    else:
        assert ask(outer, "/price") in (500, None)
        (incident,) = eventually(lambda: relive.incidents(name), "the incident")
    before_replay()
    done = relive.say("replay", "--pace", "fast", str(incident["number"]))
    assert done.returncode in (0, 1, 10), done.stdout + done.stderr
    (run,) = json.loads(done.stdout)["runs"]
    verdict = run["verdict"]
    assert done.returncode == {"reproduced": 0, "not-reproduced": 1}.get(verdict["kind"], 10)
    return dict(verdict, outcome=run["outcome"])


SAME, DIVERGED, REPRODUCED = "same-answer", "diverged", "reproduced"
# How the service fails; the word for its twin that asks nobody, and for itself.
CASES = {
    "node silent": (SAME, SAME),
    "node loud": (REPRODUCED, DIVERGED),
    "node fatal": (REPRODUCED, DIVERGED),
    "python silent": (SAME, SAME),
    "python noisy": (REPRODUCED, DIVERGED),
    "python terse": (REPRODUCED, SAME),
    "python stuck": (REPRODUCED, SAME),
    "verdicts": (REPRODUCED, DIVERGED),
}


@pytest.mark.parametrize("how", CASES)
def test_a_missing_server_is_never_taken_for_the_cause(
    relive: Relive, rates: int, tmp_path: Path, how: str
) -> None:
    """GIVEN a service that a request has poisoned; WHEN it fails and that is replayed from the commit before
    THEN it is reproduced as far as the cause shows; where the server it asks first is missing in the branch, never.
    """
    options = HANG_SOON if how.endswith("stuck") else ()
    twin, own = CASES[how]
    verdict = verdict_of(relive, how, 0, tmp_path, *options)
    assert verdict["kind"] == twin, verdict
    assert bool(verdict["evidence"]) is (twin == REPRODUCED), verdict
    verdict = verdict_of(relive, how, rates, tmp_path, *options, is_recorded=False)
    assert verdict["kind"] == own, verdict
    assert verdict["outcome"]["unreached"][0]["to"] == f"127.0.0.1:{rates}"
    assert verdict["missing"][0].startswith(f"the service could not reach 127.0.0.1:{rates} "), verdict
    assert own != SAME or f"could not reach 127.0.0.1:{rates}" in verdict["unseen"][0], verdict


def test_a_server_that_was_asked_beside_the_recorder_answers_again(
    relive: Relive, rates: int, tmp_path: Path
) -> None:
    """GIVEN the one service that says the same of every failure; WHEN nothing was said of what it asks of others
    THEN that was recorded, and it is reproduced by the answer of then.
    """
    verdict = verdict_of(relive, "python terse", rates, tmp_path)
    assert (verdict["kind"], verdict["missing"]) == (REPRODUCED, []), verdict
    assert "1 call at the network, each with the recorded answer" in verdict["evidence"], verdict


@pytest.mark.parametrize("place", ["there.sock", "gone/there.sock"])
def test_a_missing_server_behind_a_unix_socket_is_seen(relive: Relive, tmp_path: Path, place: str) -> None:
    """GIVEN a service that says the same of every failure; WHEN the server that it asks over a unix socket is missing in the branch
    THEN that is no reproduction, whether the name is still there or not.
    """
    path = tmp_path / place
    path.parent.mkdir(exist_ok=True)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()
        with saying_rates(server):
            verdict = verdict_of(
                relive, "python terse", str(path), tmp_path, before_replay=lambda: gone(path.parent, tmp_path)
            )
    assert verdict["kind"] == SAME, verdict
    assert [one["to"] for one in verdict["outcome"]["unreached"]] == [str(path)]
    assert verdict["unseen"][0].startswith(f"the service could not reach {path} (once)"), verdict


def test_a_fresh_process_that_lacks_a_server_has_not_shown_the_failure(
    relive: Relive, tmp_path: Path
) -> None:
    """GIVEN a service that says the same of every failure; WHEN a fresh process fails since the server is missing that it asks
    THEN that is the same answer, its cause not seen: over TCP as well as behind a unix socket.
    """
    path = tmp_path / "rates.sock"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()
        with saying_rates(server):
            verdict_of(relive, "python terse", str(path), tmp_path)
    (incident,) = relive("incidents")
    done = relive.say("reproduce", str(incident["number"]))
    told = json.loads(done.stdout)
    assert "attempts" in told, told
    (one,) = told["attempts"]
    assert (done.returncode, one["kind"]) == (10, SAME), one
    assert one["missing"][0].startswith(f"the service could not reach {path} ("), one
    assert one["unseen"] == one["missing"] and "the same last line" in one["evidence"][0], one
    assert [stranger["to"] for stranger in one["unreached"]] == [str(path)]
    assert "to what was not recorded" in one["played"], one


THREAD = """
import signal, threading
fail = threading.Event()
signal.signal(signal.SIGUSR1, lambda *_: fail.set())
def work():
    fail.wait()
    raise KeyError("tea")
threading.Thread(target=work, daemon=True).start()
print("ready", flush=True)
while True:
    signal.pause()
"""


def test_what_failed_outside_of_any_request_and_does_not_again_is_not_reproduced(
    relive: Relive, tmp_path: Path
) -> None:
    """GIVEN an exception in a thread, which a signal had set off; WHEN a fresh process gets none THEN nothing failed there."""
    program = tmp_path / "waiting.py"
    program.write_text(THREAD)
    started = relive(
        "run", "--detach", "--name", "waiting", "--every", "never", "--", str(PYTHON), str(program)
    )
    eventually(lambda: "ready" in relive.say("logs", "waiting").stdout, "it waits")
    os.kill(started["pid"], signal.SIGUSR1)
    (incident,) = eventually(lambda: relive("incidents"), "the incident")
    done = relive.say("reproduce", str(incident["number"]), "--limit", "1")
    told = json.loads(done.stdout)
    assert "attempts" in told, told
    (one,) = told["attempts"]
    assert (done.returncode, one["kind"], one["difference"]) == (
        1,
        "not-reproduced",
        "no exception escaped: it went on for 1 s without failing",
    ), one


def test_a_missing_server_that_is_asked_by_datagrams_is_seen(relive: Relive, tmp_path: Path) -> None:
    """GIVEN a service that says the same of every failure; WHEN the server that it asks over UDP is missing in the branch
    THEN that is no reproduction.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 0))
        port = server.getsockname()[1]
        with answering_datagrams(server):
            verdict = verdict_of(relive, "python terse", f"udp:{port}", tmp_path)
    assert verdict["kind"] == SAME, verdict
    assert [one["to"] for one in verdict["outcome"]["unreached"]] == [f"127.0.0.1:{port}"]
    assert verdict["unseen"][0].startswith(f"the service could not reach 127.0.0.1:{port} (once)"), verdict


@contextlib.contextmanager
def answering_datagrams(server: socket.socket) -> Iterator[None]:
    """Answers each; an empty one ends it."""

    def serve() -> None:
        while (asked := server.recvfrom(9))[0]:
            server.sendto(b"2", asked[1])

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield
    finally:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as last:
            last.sendto(b"", server.getsockname())
        thread.join(LIMIT)


def gone(directory: Path, kept: Path) -> None:
    """Take away a directory of its own: the branch then has none either."""
    if directory != kept:
        shutil.rmtree(directory)


def test_an_abort_by_other_calls_is_not_the_same(relive: Relive, tmp_path: Path) -> None:
    """Every abort ends at one instruction of the C library: only the calls that led there tell two of one function apart."""
    verdict = verdict_of(relive, "aborting", "-", tmp_path)
    assert verdict["kind"] == REPRODUCED and "by the same " in verdict["evidence"][0], verdict
    path = tmp_path / "rates"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()
        with saying_rates(server):
            verdict = verdict_of(relive, "aborting", str(path), tmp_path)
    assert verdict["kind"] == SAME and "other calls" in verdict["unseen"][-1], verdict
    assert verdict["missing"][0].startswith(f"the service could not reach {path} (once)"), verdict


def test_a_loop_without_an_end_is_seen_where_it_goes_round(relive: Relive, tmp_path: Path) -> None:
    """It stands nowhere: each look finds it at another instruction of the loop."""
    verdict = verdict_of(relive, "aborting loop", "-", tmp_path, *HANG_SOON)
    assert verdict["kind"] == REPRODUCED and "threads stand" in verdict["evidence"][0], verdict
