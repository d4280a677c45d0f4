"""What services in capsules ask of others, recorded at the border; and commits of such services."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from ports import free_port
from relive.images.sockets import read_connections, read_files
from relive.model.capsule import LifePaths
from relive.record.dialogues import Way, read_dialogues
from relive.record.events import EventKind
from relive.record.reading import Recording

from .harness import LIMIT, PYTHON, SERVICES, Capsule, Load, Relive, eventually


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
    relive: Relive, *command: str | Path, name: str = "service", options: tuple[str, ...] = ()
) -> Capsule:
    words = ["--detach", "--every", "never", "--no-recorder", "--record-egress", "--name", name, *options]
    answer = relive("run", *words, "--", *(str(word) for word in command))
    return Capsule(answer["name"], answer["life"], answer["pid"])


def life(relive: Relive, capsule: Capsule) -> LifePaths:
    return LifePaths(relive.settings.capsules / capsule.name / capsule.life)


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


def test_the_proxy_finds_a_service_behind_its_border(relive: Relive, echo: int) -> None:
    port, upstream = free_port(), free_port()
    options = ("--listen", f"127.0.0.1:{port}", "--upstream", str(upstream))
    capsule = run(relive, PYTHON, "-m", "http.server", str(upstream), "--bind", "127.0.0.1", options=options)
    import http.client

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
