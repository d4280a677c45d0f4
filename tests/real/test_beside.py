"""Requests recorded beside their way, from packets: the service has its port to itself, and incidents are replayed as ever."""

from __future__ import annotations

import contextlib
import http.client
import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.exceptions import ConnectionClosedError
from websockets.sync.client import ClientConnection, connect

from relive.recording.exchanges import Exchange, Exchanges
from relive.recording.reader import Recording
from support.ports import free_port
from support.waiting import LIMIT, eventually

from .harness import PYTHON, SERVICES, Load, Process, Refused, Relive

Start = Callable[..., Process]


class Client:
    """A connection that is kept."""

    def __init__(self, port: int) -> None:
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=LIMIT)
        self.answers: list[tuple[str, bytes]] = []

    def __call__(self, path: str) -> bytes:
        self.connection.request("GET", path)
        body = self.connection.getresponse().read()
        self.answers.append((path, body))
        return body

    def close(self) -> None:
        self.connection.close()


@pytest.fixture
def port() -> int:
    return free_port()


@pytest.fixture
def client(port: int) -> Iterator[Client]:
    made = Client(port)
    yield made
    made.close()


def recorded(relive: Relive, name: str) -> list[Exchange]:
    life = max(relive.home.glob(f"capsules/{name}/2*"), default=None) or next(
        one for one in relive.home.glob(f"capsules/{name}/*") if not one.is_symlink()
    )
    return list(Exchanges(Recording(life / "recording")).begun_in(0, 1 << 60))


def incident(relive: Relive, name: str) -> dict[str, Any]:
    return dict(eventually(lambda: relive.incidents(name), "an incident")[0])


def same_again(relive: Relive, *what: str) -> None:
    """A replay ends as recorded; of an answer's cause the service says nothing."""
    answer = json.loads(relive.say("replay", "--pace", "fast", *what).stdout)
    assert answer["runs"][0]["verdict"]["kind"] in ("reproduced", "same-answer"), answer


def answered(socket: ClientConnection, word: str) -> None:
    socket.send(word)
    socket.recv(timeout=LIMIT)


def run(relive: Relive, directory: Path, port: int) -> None:
    directory.mkdir()
    options = ("--detach", "--name", "attended", "--every", "never")
    listen = ("--listen", f"127.0.0.1:{port}")
    relive(
        "run", *options, *listen, "--", str(PYTHON), str(SERVICES / "attended.py"), str(port), str(directory)
    )


def _answers(connection: http.client.HTTPConnection) -> bool:
    try:
        connection.request("GET", "/first")
        return connection.getresponse().read() != b""
    except OSError:
        connection.close()
        return False


def test_a_failing_request_is_reproduced_from_a_commit_in_the_middle_of_traffic(
    relive: Relive, tmp_path: Path, port: int, client: Client
) -> None:
    """GIVEN clients that keep asking while the service is committed
    WHEN a request fails later
    THEN the commit is followed by precisely those requests that came after it: the answers, which count them, are the same.
    """
    run(relive, tmp_path / "files", port)
    others = [Client(port) for _ in range(3)]
    loads = [Load(lambda one=one: one("/other"), one.close) for one in others]
    with contextlib.ExitStack() as stack:
        for load in loads:
            stack.enter_context(load)
        for load in loads:
            load.more()
        commit = relive("commit", "attended")["id"]
        for load in loads:
            load.more()
    client("/sick")
    client("/health")
    told = incident(relive, "attended")
    assert "/health" in told["sighting"]["summary"]
    asked = {one.answer_body() for one in recorded(relive, "attended")}
    assert asked >= {body for one in [client, *others] for _, body in one.answers}
    number = told["sighting"]["request"]
    same_again(relive, commit, "--request", str(number))


def test_a_crash_has_the_request_that_it_took_along(
    relive: Relive, tmp_path: Path, port: int, client: Client
) -> None:
    run(relive, tmp_path / "files", port)
    client("/before")
    relive("commit", "attended")
    with pytest.raises((http.client.HTTPException, OSError)):
        client("/null")
    told = incident(relive, "attended")
    assert told["sighting"]["kind"] == "signal"
    (failed,) = [one for one in recorded(relive, "attended") if one.number == told["sighting"]["request"]]
    assert failed.target == "/null"
    same_again(relive, str(told["number"]))


def test_what_is_said_on_a_websocket_that_a_commit_holds_makes_it_fail_again(
    relive: Relive, port: int
) -> None:
    """GIVEN a WebSocket that was there at the commit, and one that comes later; WHEN a message raises, THEN it does so again."""
    words = ("--detach", "--name", "chatting", "--every", "never", "--listen", f"127.0.0.1:{port}")
    served = ("-m", "uvicorn", "--app-dir", str(SERVICES), "chatting:app", "--port", str(port))
    relive("run", *words, "--", str(PYTHON), *served)
    url = f"ws://127.0.0.1:{port}/chat"
    with connect(url) as early:
        answered(early, "tea")
        relive("commit", "chatting")
        with connect(url) as late:
            answered(late, "milk")
            answered(late, "-milk")
        with pytest.raises(ConnectionClosedError):
            answered(early, "ratio")
    told = incident(relive, "chatting")
    (replayed,) = relive("replay", "--pace", "fast", str(told["number"]))["runs"]
    assert replayed["verdict"]["kind"] == "reproduced", replayed
    (seen,) = replayed["verdict"]["evidence"]
    assert seen == "the same exception inside: ZeroDivisionError, from the same frames"


def test_a_service_that_runs_is_recorded_from_the_middle_of_its_connections_on(
    relive: Relive, start: Start, tmp_path: Path, port: int, client: Client, request: pytest.FixtureRequest
) -> None:
    """GIVEN a connection that stood before the watch
    WHEN the service is watched beside the way
    THEN its requests are recorded, the service sees its true client, and it outlives the watch.
    """
    (tmp_path / "files").mkdir()
    process = start(
        *(PYTHON, SERVICES / "attended.py", str(port), tmp_path / "files"),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    )
    eventually(lambda: _answers(client.connection), "it answers")
    options = ("--name", "attended", "--every", "never", "--record", str(port))
    begun = relive("watch", f"pid:{process.pid}", *options)
    request.addfinalizer(lambda: relive.say("stop", "attended"))
    assert begun["listen"] == f"0.0.0.0:{port}"
    assert [one["capture"] for one in relive("ps")] == ["beside"]

    def is_recorded() -> bool:
        client("/kept")
        return bool(recorded(relive, "attended"))

    eventually(is_recorded, "requests are recorded")
    assert client("/kept").split()[1] == b"127.0.0.1"
    relive("commit", "attended")
    client("/sick")
    client("/health")
    told = incident(relive, "attended")
    same_again(relive, str(told["number"]))
    relive("stop", "attended")
    assert client("/after")


@pytest.mark.parametrize(
    "options",
    [
        ("--listen", "127.0.0.1:80", "--upstream", "81"),
        ("--listen", "127.0.0.1:80", "--every", "request"),
        (),
    ],
)
def test_what_packets_cannot_give_is_refused(relive: Relive, options: tuple[str, ...]) -> None:
    with pytest.raises(Refused) as refused:
        relive("run", "--detach", "--name", "s", "--capture", "beside", *options, "--", "/bin/true")
    assert refused.value.code == "usage"


def test_requests_of_http2_in_clear_are_incidents_and_come_again(
    relive: Relive, tmp_path: Path, port: int
) -> None:
    """GIVEN a service of HTTP/2 that counts, a client that keeps its connection to it, and a commit in between
    WHEN the third request fails
    THEN it is an incident, whose replay sends what came after the commit over HTTP/2 again, to the same answer.
    """
    code = ("--bind", f"127.0.0.1:{port}", f"{SERVICES / 'streams.py'}:app")
    relive(
        *("run", "--detach", "--name", "streams", "--every", "never", "--listen", f"127.0.0.1:{port}"),
        *("--", str(PYTHON), "-m", "hypercorn", *code),
    )
    with httpx.Client(http1=False, http2=True, base_url=f"http://127.0.0.1:{port}", timeout=LIMIT) as client:
        assert eventually(lambda: _text_of(client, b"a"), "it listens") == "2 POST 1"
        relive("commit", "streams")
        assert (
            _text_of(client, b"b" * 100_000) == "2 POST 100001"
        )  # more than a window of HTTP/2 has at first
        assert _text_of(client, b"c") == "2 POST 100002"
    told = incident(relive, "streams")
    assert "POST /order" in told["sighting"]["summary"], told["sighting"]
    found = {one.number: one for one in recorded(relive, "streams")}
    failed = found[told["sighting"]["request"]]
    assert (failed.is_http2, failed.status, failed.answer_body()) == (True, 500, b"2 POST 100002")
    same_again(relive, str(told["number"]))
    known = relive("show", str(told["number"]))["recording"]
    assert (known["request"], known["capture"], known["egress_way"]) == (failed.number, "beside", "beside")


def _text_of(client: httpx.Client, body: bytes) -> str | None:
    try:
        return client.post("/order", content=body).text
    except httpx.ConnectError:
        return None
