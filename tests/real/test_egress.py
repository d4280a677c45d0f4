"""What services in capsules ask of others, recorded at the border; and commits of such services."""

from __future__ import annotations

import http.client
import http.server
import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from relive.images.sockets import read_connections, read_files
from relive.model.capsule import EgressWay
from relive.model.life_paths import LifePaths
from relive.protocols.postgres import PostgreSQL
from relive.protocols.registry import ProtocolRegistry
from relive.recording.dialogues import Tls, Way, read_dialogues
from relive.recording.events import Event, EventKind
from relive.recording.reader import Recording
from support.certificates import TestAuthority
from support.ports import free_port
from support.servers import HAS_POSTGRES, HAS_REDIS, postgres_server, redis_server
from support.waiting import LIMIT, eventually

from .harness import PYTHON, RELIVE, SERVICES, Capsule, Load, Refused, Relive


@pytest.fixture
def echo() -> Iterator[int]:
    """Port of a server of the host that says everything again."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve(sock: socket.socket) -> None:
        with sock:
            while data := sock.recv(1 << 16):
                sock.sendall(data)

    def accept() -> None:
        while True:
            try:
                sock, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=serve, args=(sock,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    yield listener.getsockname()[1]
    listener.close()


@pytest.fixture
def https(tmp_path: Path) -> Iterator[tuple[int, Path]]:
    """Port of a web server at localhost, and the file of the authority that has issued its certificate."""
    authority = TestAuthority(tmp_path)

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            body = f"hello {self.path}\n".encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.socket = authority.server("localhost").wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_port, authority.path
    server.shutdown()
    server.server_close()


class Client:
    """Sends lines and gets lines."""

    def __init__(self, port: int) -> None:
        self.sock = socket.create_connection(("127.0.0.1", port), timeout=LIMIT)
        self.answers = self.sock.makefile("rb")
        self.said = 0

    def __call__(self) -> int:
        self.said += 1
        self.sock.sendall(b"%d\n" % self.said)
        assert self.answers.readline() == b"%d\n" % self.said
        return self.said

    def close(self) -> None:
        self.sock.close()


def run(
    relive: Relive,
    *command: str | Path,
    name: str = "service",
    options: tuple[str, ...] = (),
    environment: dict[str, str] | None = None,
) -> Capsule:
    words = ["--detach", "--every", "never", "--no-recorder", "--record-egress", "--name", name, *options]
    answer = relive("run", *words, "--", *(str(word) for word in command), environment=environment)
    return Capsule(answer["name"], answer["life"], answer["pid"])


def life(relive: Relive, capsule: Capsule) -> LifePaths:
    return LifePaths(relive.settings.capsules / capsule.name / capsule.life)


def recorded(relive: Relive, capsule: Capsule) -> list[Event]:
    return list(Recording(life(relive, capsule).egress).events())


def kill_recorder(relive: Relive, capsule: Capsule) -> None:
    """Kill it, and wait until there is another."""

    def started() -> list[Event]:
        return [one for one in recorded(relive, capsule) if one.kind is EventKind.RECORDER_STARTED]

    before = started()
    os.kill(before[-1].fields["pid"], signal.SIGKILL)
    eventually(lambda: len(started()) > len(before), "another is there")


def count_of(relive: Relive, capsule: Capsule, word: bytes) -> int:
    """How often the service has said something to others."""
    return sum(one.text(Way.UP).count(word) for one in read_dialogues(recorded(relive, capsule)))


def client_of(port: int) -> Client:
    return eventually(lambda: Client(port), "the service is reached")


def test_a_commit_under_traffic_knows_where_each_connection_stood(relive: Relive, echo: int) -> None:
    """Places computed from CRIU's image of the socket are those of the recording, and the commit comes back."""
    port = free_port()
    capsule = run(relive, PYTHON, SERVICES / "asker.py", port, echo)
    client = client_of(port)
    with Load(client, client.close) as load:
        for _ in range(3):
            commit = relive.commit(capsule)
            load.more()
    branch = relive.restore(commit)
    events = list(Recording(life(relive, capsule).egress).events())
    (dialogue,) = read_dialogues(events)
    images = relive.settings.branches / branch.id / "images"
    connections = read_connections(images, read_files(images))
    (entry,) = [one for one in connections if one.peer == ("127.0.0.1", echo)]
    assert (entry.local, entry.peer) == (dialogue.origin, dialogue.to)
    up = dialogue.place(Way.UP, entry.stream.outq_seq - entry.stream.outq_len)
    down = dialogue.place(Way.DOWN, entry.stream.inq_seq)
    (taken,) = [
        event
        for event in events
        if event.kind is EventKind.COMMIT_TAKEN and event.fields["commit"] == commit.manifest.capture
    ]
    # Nothing came after the gate was closed; a line that was said while it was is still to be answered.
    known = sum(len(piece.data) for piece in dialogue.of(Way.DOWN) if piece.seq <= taken.fields["cursor"])
    assert down == known
    assert up is not None and 0 <= up - down <= len(b"12345\n")
    assert dialogue.text(Way.UP, down, up) in (
        b"",
        b"%d\n" % (dialogue.text(Way.UP, 0, down).count(b"\n") + 1),
    )


def test_a_killed_recorder_is_replaced_and_the_service_goes_on(relive: Relive, echo: int) -> None:
    """One that connects anew each time does not notice."""
    port = free_port()
    asks = f"""
import socket
listener = socket.create_server(("127.0.0.1", {port}))
while True:
    client, _ = listener.accept()
    with client, socket.create_connection(("127.0.0.1", {echo})) as other:
        other.sendall(client.recv(100))
        client.sendall(other.recv(100))
"""
    capsule = run(relive, PYTHON, "-c", asks)

    def ask() -> bytes:
        with socket.create_connection(("127.0.0.1", port), timeout=LIMIT) as sock:
            sock.sendall(b"hello")
            return sock.recv(100)

    assert eventually(ask, "it is reached") == b"hello"
    kill_recorder(relive, capsule)
    assert eventually(ask, "it is reached again") == b"hello"
    assert len(read_dialogues(recorded(relive, capsule))) == 2
    assert "the recorder at the border ended; starting another" in relive.agent_log(capsule)


def test_what_a_service_says_before_its_end_arrives(relive: Relive) -> None:
    size = 30 << 20
    with socket.create_server(("127.0.0.1", 0)) as listener:
        says = (
            f"import socket; s = socket.create_connection({listener.getsockname()}); s.sendall(bytes({size}))"
        )
        run(relive, PYTHON, "-c", says)
        listener.settimeout(LIMIT)
        sock, _ = listener.accept()
        with sock:
            sock.settimeout(LIMIT)
            got = 0
            while data := sock.recv(1 << 20):
                got += len(data)
    assert got == size


def test_what_a_service_answers_before_its_end_arrives(relive: Relive) -> None:
    port, size = free_port(), 30 << 20
    answers = f"""
import socket
sock, _ = socket.create_server(("127.0.0.1", {port})).accept()
sock.sendall(bytes({size}))
"""
    run(relive, PYTHON, "-c", answers)
    with eventually(
        lambda: socket.create_connection(("127.0.0.1", port), timeout=LIMIT), "it is reached"
    ) as sock:
        got = 0
        while data := sock.recv(1 << 20):
            got += len(data)
    assert got == size


@pytest.mark.skipif(not (HAS_POSTGRES and HAS_REDIS), reason="needs PostgreSQL and Redis")
@pytest.mark.parametrize("way", EgressWay)
def test_databases_under_traffic_are_recorded_and_the_commit_comes_back(
    relive: Relive, way: EgressWay
) -> None:
    """Beside the way the recorder is killed under the traffic, before the commit."""
    port = free_port()
    with postgres_server() as url, redis_server() as redis_url:
        redis_port = urlsplit(redis_url).port
        command = (PYTHON, SERVICES / "databases.py", port, url, redis_port)
        capsule = run(relive, *command, options=("--egress", way))
        client = eventually(
            lambda: socket.create_connection(("127.0.0.1", port), timeout=LIMIT), "it is reached"
        )
        answers = client.makefile("rb")
        said = 0

        def count() -> None:
            nonlocal said
            said += 1
            client.sendall(b"line %d\n" % said)
            assert answers.readline() == b"%d %d\n" % (said, said)

        with client, answers, Load(count) as load:
            if way is EgressWay.BESIDE:
                kill_recorder(relive, capsule)
                load.more()
            commit = relive.commit(capsule)
            had = read_dialogues(recorded(relive, capsule))
            load.more()
        eventually(lambda: count_of(relive, capsule, b"INCR") == said, "what was said last is recorded")
        branch = relive.restore(commit)
        images = relive.settings.branches / branch.id / "images"
        stand = {one.local: one for one in read_connections(images, read_files(images))}
        dialogues = read_dialogues(recorded(relive, capsule))
        open_ones = [one for one in dialogues if one.origin in stand]
        assert len(open_ones) == 3  # two of the pool, one of redis-py
        for one in open_ones:
            stream = stand[one.origin].stream
            up = one.place(Way.UP, stream.outq_seq - stream.outq_len)
            down = one.place(Way.DOWN, stream.inq_seq)
            assert up is not None and 0 < up <= len(one.text(Way.UP))
            assert down is not None and 0 < down <= len(one.text(Way.DOWN))
            # All that the commit has was recorded when it was there.
            (then,) = (each for each in had if each.number == one.number)
            assert len(then.text(Way.DOWN)) >= down
        # What it asked reads as what it was.
        known = ProtocolRegistry()
        calls = [call for one in dialogues for call in known.protocol_of(one).calls(one)]
        assert (
            sum(call.kind is EventKind.REDIS_COMMAND and "INCR" in str(call.asked) for call in calls) == said
        )
        postgres = PostgreSQL()
        queries = [c for one in dialogues if postgres.recognises(one) for c in postgres.calls(one)]
        inserts = sum("insert into counted" in str(call.asked) for call in queries)
        assert said <= inserts <= said + 2  # psycopg prepares it once on each of its two connections


@pytest.mark.skipif(not (HAS_POSTGRES and HAS_REDIS), reason="needs PostgreSQL and Redis")
def test_neither_databases_nor_clients_lose_a_connection_when_recorders_are_killed(relive: Relive) -> None:
    """The service would end with the first of them: it never connects again."""
    port = free_port()
    with postgres_server() as url, redis_server() as redis_url:
        redis_port = urlsplit(redis_url).port
        capsule = run(relive, PYTHON, SERVICES / "databases.py", port, url, redis_port)
        client = eventually(
            lambda: socket.create_connection(("127.0.0.1", port), timeout=LIMIT), "it is reached"
        )
        answers = client.makefile("rb")
        said = 0

        def count() -> None:
            nonlocal said
            said += 1
            client.sendall(b"line %d\n" % said)
            assert answers.readline() == b"%d %d\n" % (said, said)

        def recorders() -> list[int]:
            events = recorded(relive, capsule)
            return [e.fields["pid"] for e in events if e.kind is EventKind.RECORDER_STARTED]

        with client, answers, Load(count) as load:
            for number in range(1, 4):
                load.more()
                os.kill(recorders()[-1], signal.SIGKILL)
                eventually(lambda wanted=number: len(recorders()) > wanted, "another records")
            load.more()
            commit = relive.commit(capsule)
            load.more()
        relive.restore(commit)
        dialogues = read_dialogues(recorded(relive, capsule))
        assert [one.error for one in dialogues] == [None] * len(dialogues)
        assert {one.number for one in dialogues if not one.endings} >= {
            1,
            2,
            3,
        }  # two of the pool, one of redis-py
        known = ProtocolRegistry()
        calls = [call for one in dialogues for call in known.protocol_of(one).calls(one)]
        incremented = sum(c.kind is EventKind.REDIS_COMMAND and "INCR" in str(c.asked) for c in calls)
        assert incremented == said


def test_the_proxy_finds_a_service_behind_its_border(relive: Relive, echo: int) -> None:
    port, upstream = free_port(), free_port()
    options = ("--listen", f"127.0.0.1:{port}", "--upstream", str(upstream))
    capsule = run(relive, PYTHON, "-m", "http.server", str(upstream), "--bind", "127.0.0.1", options=options)

    def ask() -> int:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=LIMIT)
        connection.request("GET", "/")
        status = connection.getresponse().status
        connection.close()
        return status

    assert eventually(ask, "the proxy answers") == 200
    relive.commit(capsule)
    assert ask() == 200
    kinds = [event.kind for event in Recording(life(relive, capsule).recording).events()]
    assert kinds.count(EventKind.ANSWER_STARTED) == 2
    assert not [
        e for e in Recording(life(relive, capsule).egress).events() if e.kind is EventKind.DIALOGUE_OPENED
    ]


HTTPS_CLIENTS = {
    "curl": ["curl", "-sS", "URL"],
    "requests": [PYTHON, "-c", "import requests; print(requests.get('URL').text, end='')"],
    "httpx": [PYTHON, "-c", "import httpx; print(httpx.get('URL').text, end='')"],
    "urllib": [
        PYTHON,
        "-c",
        "from urllib.request import urlopen; print(urlopen('URL').read().decode(), end='')",
    ],
    "node": ["node", "-e", "fetch('URL').then(r => r.text()).then(t => process.stdout.write(t))"],
}


def test_https_of_every_client_is_opened(relive: Relive, https: tuple[int, Path], tmp_path: Path) -> None:
    """One service that runs them all; each trusts the server by the variable that it knows."""
    port, roots = https
    names = [name for name in HTTPS_CLIENTS if shutil.which(str(HTTPS_CLIENTS[name][0]))]
    script = tmp_path / "all.sh"
    lines = []
    for name in names:
        words = [str(word).replace("URL", f"https://localhost:{port}/{name}") for word in HTTPS_CLIENTS[name]]
        lines.append(shlex.join(words))
    script.write_text("\n".join([*lines, "echo finished", "exec sleep 60"]))
    variables = "SSL_CERT_FILE REQUESTS_CA_BUNDLE CURL_CA_BUNDLE NODE_EXTRA_CA_CERTS"
    capsule = run(relive, "sh", script, environment=dict.fromkeys(variables.split(), str(roots)))
    eventually(lambda: "finished" in relive.output(capsule), "all have asked")
    assert relive.output(capsule).split("\n")[:-2] == [f"hello /{name}" for name in names]
    dialogues = read_dialogues(Recording(life(relive, capsule).egress).events())
    said = {one.text(Way.UP).split()[1].decode(): one for one in dialogues}
    assert set(said) == {f"/{name}" for name in names}
    known = ProtocolRegistry()
    for path, one in said.items():
        assert one.tls is Tls.OPENED
        (call,) = known.protocol_of(one).calls(one)
        assert call.kind is EventKind.HTTP_CALL and path in str(call.asked)
        assert f"hello {path}\n".encode() in one.text(Way.DOWN)


WAITS = """
import socket, sys
listener = socket.create_server(("127.0.0.1", int(sys.argv[1])))
while True:
    with listener.accept()[0] as sock:
        with socket.create_connection(("127.0.0.1", int(sock.recv(9)))) as asked:
            asked.sendall(b"the first word")
            sock.sendall(asked.recv(99))
"""


def test_without_a_word_calls_are_recorded_beside_their_way_from_the_first_on(
    relive: Relive, echo: int
) -> None:
    """A service that asks nobody has no recorder, and none is made for a commit; the first thing it says is recorded."""
    port = free_port()
    capsule = relive.run(PYTHON, "-c", WAITS, str(port), options=("--no-recorder",))
    with eventually(
        lambda: socket.create_connection(("127.0.0.1", port), timeout=LIMIT), "it is reached"
    ) as sock:
        relive.commit(capsule)
        assert [one["egress"] for one in relive("ps")] == ["beside"]
        assert not life(relive, capsule).egress.exists()
        sock.sendall(b"%d" % echo)
        assert sock.recv(99) == b"the first word"
    eventually(lambda: count_of(relive, capsule, b"the first word") == 1, "it is recorded")
    kill_recorder(relive, capsule)
    relive("stop", "--timeout", "0.1", capsule.name)
    (one,) = read_dialogues(recorded(relive, capsule))
    assert (one.to, one.text(Way.DOWN)) == (("127.0.0.1", echo), b"the first word")


def test_what_a_service_says_that_ends_at_once_is_recorded(relive: Relive, echo: int) -> None:
    """It has ended before anybody could start a recorder."""
    says = (
        f"import socket; s = socket.create_connection(('127.0.0.1', {echo})); s.sendall(b'gone'); s.recv(4)"
    )
    capsule = relive.run(PYTHON, "-S", "-c", says, options=("--no-recorder",))
    eventually(life(relive, capsule).closed.exists, "all about its end is written down")
    (one,) = read_dialogues(recorded(relive, capsule))
    assert (one.text(Way.UP), one.text(Way.DOWN)) == (b"gone", b"gone")
    assert len(one.endings) == 2


def test_a_host_that_cannot_copy_calls_starts_the_service_all_the_same(relive: Relive) -> None:
    """There are no control groups of version 2. Who wants it recorded is refused."""
    words = 'mount -t tmpfs none /sys/fs/cgroup && exec "$@"'
    hidden = [
        "unshare",
        "--mount",
        "sh",
        "-c",
        words,
        "sh",
        str(RELIVE),
        "run",
        "--json",
        "--detach",
        "--no-wait",
    ]
    hidden += ["--every", "never", "--name", "alone"]

    def start(*options: str) -> subprocess.CompletedProcess[str]:
        command = [*hidden, *options, "--", "/bin/sleep", "1000"]
        return subprocess.run(
            command, env=relive.environment, capture_output=True, text=True, check=False, timeout=LIMIT
        )

    refused = start("--egress", "beside")
    assert json.loads(refused.stdout)["error"]["code"] == "host-incapable", refused
    started = start()
    why = "What it asks of others is not recorded: copies of what a control group sends: "
    assert started.returncode == 0 and started.stderr.count(why) == 1, started
    assert "such as databases: `--record-egress` records it" in started.stderr
    (one,) = relive("ps")
    assert one["egress"] is None and one["notes"][0].startswith(why)


def test_a_host_without_what_is_needed_says_so_and_starts_nothing(relive: Relive, tmp_path: Path) -> None:
    """There is ``ip`` and no ``iptables``: process 1 finds that out."""
    ip = shutil.which("ip")
    assert ip is not None
    (tmp_path / "ip").symlink_to(ip)
    with pytest.raises(Refused, match="iptables is not installed") as caught:
        run(relive, "/bin/true", environment={"PATH": str(tmp_path)})
    assert caught.value.code == "tool-missing" and "apt-get install iptables" in caught.value.remedy
    assert not list(relive.settings.capsules.glob("*/2*"))
