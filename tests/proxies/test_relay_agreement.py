"""The relay and Python write the same of the same traffic: scripts are played through both, and the recordings compared."""

from __future__ import annotations

import contextlib
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from relive.config import load_settings
from relive.proxies.ingress.options import RELAY
from relive.recording.events import Event, EventKind

from .conftest import PlayedService, RunningProxy, Wire

BODY_LIMIT = 3000
WITHOUT_PLACE = ("client", "local_port")
PIECES = (EventKind.REQUEST_BODY, EventKind.ANSWER_BODY, EventKind.STREAM_TO_CLIENT)


class Told(NamedTuple):
    """An event without when and where."""

    kind: EventKind
    data: bytes
    fields: dict[str, Any]


@dataclass(frozen=True)
class Exchange:
    """A request and all that the service says to it; ``is_refused``: the proxy answers it itself."""

    request: bytes
    answer: bytes = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
    is_refused: bool = False


CHUNKED = b"4\r\nwiki\r\n5;x=y\r\npedia\r\n0\r\nT: v\r\n\r\n"
LONG = b"HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n" + b"z" * 5000
PLAIN = (
    Exchange(b"GET /a HTTP/1.1\r\nHost: x\r\n\r\n"),
    Exchange(b"POST /p HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello"),
    Exchange(
        b"POST /e HTTP/1.1\r\ncontent-LENGTH:\t0 \r\n\r\n",
        b"HTTP/1.1 500 Oh dear\r\nContent-Length: 3\r\n\r\nbad",
    ),
    Exchange(b"HEAD /h HTTP/1.0\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 77\r\n\r\n"),
    Exchange(b"DELETE /d HTTP/1.1\r\n\r\n", b"HTTP/1.1 204 No Content\r\n\r\n"),
    Exchange(b"GET /c HTTP/1.1\r\n\r\n", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n" + CHUNKED),
    Exchange(b"GET /l HTTP/1.1\r\n\r\n", LONG),
    Exchange(b"GET /n HTTP/1.1\r\n\r\n", b"HTTP/1.1 304\r\nContent-Length: 9\r\n\r\n"),
    Exchange(b"PUT /u HTTP/1.1\r\nContent-Length: 2500\r\n\r\n" + b"u" * 2500),
)
# What the relay leaves to Python, in the middle of a connection.
OTHER = (
    Exchange(b"POST /t HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n" + CHUNKED),
    Exchange(b"POST /b HTTP/1.1\r\nContent-Length: 4000\r\n\r\n" + b"b" * 4000),
    Exchange(b"GET /lf HTTP/1.1\nHost: x\n\n"),
    Exchange(b"\r\nGET /blank HTTP/1.1\r\n\r\n"),
    Exchange(b"GET /f HTTP/1.1\r\n\r\n", b"HTTP/1.1 200 OK\r\nX: a\r\n folded\r\nContent-Length: 1\r\n\r\n1"),
    Exchange(
        b"GET /i HTTP/1.1\r\n\r\n",
        b"HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n1",
    ),
    Exchange(
        b"GET /r HTTP/1.1\r\nUpgrade: h2c\r\nConnection: upgrade\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n1",
    ),
)
LAST = (
    Exchange(b"GET /close HTTP/1.1\r\n\r\n", b"HTTP/1.0 200 OK\r\n\r\n" + b"until it closes " * 300),
    Exchange(
        b"GET /ws HTTP/1.1\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
        b"HTTP/1.1 101 S\r\nUpgrade: x\r\n\r\nstream",
    ),
    Exchange(b"GET /bad HTTP/1.1\r\nno colon\r\n\r\n", b"HTTP/1.1 400", is_refused=True),
    Exchange(
        b"POST /two HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"HTTP/1.1 400",
        is_refused=True,
    ),
    Exchange(
        b"GET /v HTTP/1.1\r\n\r\n", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nno size\r\nat all"
    ),
    Exchange(b"GET /x HTTP/1.1\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nunfin"),
)
ENDS = ("client closes", "client resets", "service closes", "service resets", "client half-closes")


@dataclass(frozen=True)
class Script:
    """What is said on one connection, in which pieces, and who ends it."""

    exchanges: tuple[Exchange, ...]
    is_pipelined: bool
    end: str
    seed: int

    def play(self, proxy: RunningProxy, service: PlayedService) -> None:
        chance = random.Random(self.seed)
        client = proxy.client()
        inside: Wire | None = None
        for group in self._groups():
            asked = b"".join(one.request for one in group)
            say(chance, client, asked)
            inside = inside or service.accept()
            inside.expect(b"".join(one.request for one in group if not one.is_refused))
            for one in group:
                if not one.is_refused:
                    say(chance, inside, one.answer)
                client.expect(one.answer)
        assert inside is not None
        self._end(client, inside)

    def _groups(self) -> list[tuple[Exchange, ...]]:
        """What is asked at once. A request that is not for the relay waits there until those before it are answered."""
        if not self.is_pipelined:
            return [(one,) for one in self.exchanges]
        plain = tuple(one for one in self.exchanges if one in PLAIN)
        return [plain, *((one,) for one in self.exchanges if one not in PLAIN)]

    def _end(self, client: Wire, inside: Wire) -> None:
        if self.end == "client closes":
            client.close()
            assert inside.receive() == b""
        elif self.end == "client resets":
            client.reset()
            wait_for_the_end(inside)
        elif self.end == "service closes":
            inside.close()
            wait_for_the_end(client)
        elif self.end == "service resets":
            inside.reset()
            wait_for_the_end(client)
        else:
            client.half_close()
            assert inside.receive() == b""
            inside.close()
            wait_for_the_end(client)
        for wire in (client, inside):
            wire.close()


def wait_for_the_end(wire: Wire) -> None:
    with contextlib.suppress(ConnectionResetError):
        wire.rest()


def say(chance: random.Random, wire: Wire, data: bytes) -> None:
    while data:
        size = chance.choice((1, 3, 20, 1000, len(data)))
        wire.send(data[:size])
        data = data[size:]


def script(seed: int) -> Script:
    chance = random.Random(seed)
    exchanges = [chance.choice(PLAIN) for _ in range(chance.randrange(1, 5))]
    is_pipelined = chance.random() < 0.3
    if not is_pipelined and chance.random() < 0.4:
        exchanges.insert(chance.randrange(len(exchanges) + 1), chance.choice(OTHER))
    end = chance.choice(ENDS)
    if chance.random() < 0.4:
        last = chance.choice(LAST)
        exchanges.append(last)
        end = "client closes" if last.is_refused else end
    return Script(tuple(exchanges), is_pipelined, end, seed)


def told(events: list[Event]) -> list[dict[int, list[Told]]]:
    """By connection and request (from 1 in its connection), what happened; pieces of one body are one."""
    found: dict[int, dict[int, list[Told]]] = {}
    first: dict[int, int] = {}
    for event in events:
        if not event.connection:
            continue
        number = event.request
        if number:
            number -= first.setdefault(event.connection, number) - 1
        story = found.setdefault(event.connection, {}).setdefault(number, [])
        fields = {name: value for name, value in event.fields.items() if name not in WITHOUT_PLACE}
        data = event.data
        if event.kind in PIECES and story and story[-1].kind is event.kind:
            data = story.pop().data + data
        story.append(Told(event.kind, data, fields))
    return [found[number] for number in sorted(found)]


def recorded(directory: Path, scripts: list[Script], *options: str) -> list[dict[int, list[Told]]]:
    service = PlayedService()
    directory.mkdir()
    proxy = RunningProxy(directory, service.port, "--body-limit", str(BODY_LIMIT), *options)
    try:
        for one in scripts:
            try:
                one.play(proxy, service)
            except BaseException as error:
                error.add_note(f"{options}: {one}")
                raise
        proxy.wait_for(EventKind.CONNECTION_CLOSED, len(scripts))
    finally:
        proxy.stop()
        service.close()
    return told(proxy.events())


@pytest.mark.parametrize("first", [0, 1000])
def test_the_relay_writes_what_python_writes(tmp_path: Path, first: int):
    agree(tmp_path, [script(first + number) for number in range(60)])


@pytest.mark.soak
def test_the_relay_writes_what_python_writes_of_much_more(tmp_path: Path):
    """``pytest -m soak tests/proxies/test_relay_agreement.py``."""
    agree(tmp_path, [script(10_000 + number) for number in range(3000)])


def agree(tmp_path: Path, scripts: list[Script]) -> None:
    relay = recorded(tmp_path / "relay", scripts, "--relay", str(load_settings().tools_path / RELAY))
    python = recorded(tmp_path / "python", scripts)
    assert len(relay) == len(python) == len(scripts)
    for one, by_relay, by_python in zip(scripts, relay, python, strict=True):
        assert by_relay == by_python, one
